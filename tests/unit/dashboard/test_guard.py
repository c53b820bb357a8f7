from typing import Any

import pytest

from training_gym.dashboard.guard import MOST_BYTES

PATHS = (
    "runs", "runs/good", "runs/good/steps", "runs/good/episodes", "runs/good/logs",
    "runs/good/timeline", "runs/good/alerts", "series", "stream", "changes", "filters", "panels",
    "session", "nothing",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_told_without_a_key(reader: Any, path: str) -> None:
    answer = reader.ask(f"/api/v1/{path}", role=None)
    assert answer.status == 401
    assert answer.json["error"]["fix"]


@pytest.mark.parametrize(
    "path", ["runs/good/notes", "runs/good/tags", "runs/good/acknowledgements"]
)
def test_nobody_writes_without_a_key(reader: Any, path: str) -> None:
    assert reader.ask(f"/api/v1/runs/good/{path}", method="POST", role=None, body={}).status == 401


def test_a_viewer_reads_and_does_not_write(reader: Any) -> None:
    assert reader.ask("/api/v1/runs", role="viewer").status == 200
    answer = reader.ask(
        "/api/v1/runs/good/notes", method="POST", role="viewer", body={"text": "hello"}
    )
    assert answer.status == 403


def test_the_key_becomes_a_cookie_and_leaves_the_address(reader: Any) -> None:
    key = reader.access.key("editor")
    answer = reader.ask(f"/runs/good/logs?token={key}&q=x", role=None)
    assert answer.status == 303
    assert answer.headers["location"] == "/runs/good/logs?q=x"
    cookie = answer.headers["set-cookie"]
    assert key not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    got = reader.ask("/api/v1/session", role=None, cookie=cookie.split(";")[0])
    assert (got.status, got.json["role"], got.json["name"]) == (200, "editor", "ada")


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "///evil.example/x"])
def test_the_exchange_never_leads_elsewhere(reader: Any, path: str) -> None:
    answer = reader.ask(f"http://localhost{path}?token={reader.access.key('editor')}", role=None)
    assert answer.headers["location"].startswith("/")
    assert not answer.headers["location"].startswith(("//", "/\\"))


def test_a_wrong_key_gives_no_cookie(reader: Any) -> None:
    answer = reader.ask("/?token=wrong", role=None)
    assert answer.status == 303
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.nip.io"])
def test_another_host_name_is_refused(reader: Any, host: str) -> None:
    assert reader.ask("/api/v1/runs", host=host).status == 421
    assert reader.ask("/", role=None, host=host).status == 421


def test_the_port_is_no_part_of_the_name(reader: Any) -> None:
    assert reader.ask("/api/v1/runs", host="localhost:7860").status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"origin": "http://localhost", "sec_fetch_site": "same-origin"}, 201),
    ],
)
def test_another_sites_page_cannot_write(server: Any, headers: dict[str, str], status: int) -> None:
    answer = server.ask("/api/v1/runs/good/notes", method="POST", body={"text": "hello"}, **headers)
    assert answer.status == status


def test_a_body_that_is_too_large_is_refused(reader: Any) -> None:
    content = b'{"text": "' + b"x" * MOST_BYTES + b'"}'
    path = "/api/v1/runs/good/notes"
    assert reader.ask(path, method="POST", content=content).status == 413
    lied = reader.ask(path, method="POST", content=content, content_length="10")
    assert lied.status == 413


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"text": 1, "more": 2}', b"\xff\xfe"])
def test_a_body_that_makes_no_sense_is_refused(reader: Any, body: bytes) -> None:
    answer = reader.ask("/api/v1/runs/good/notes", method="POST", content=body)
    assert answer.status == 400
    assert answer.json["error"]["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/runs/..%2f..%2fetc/logs", "/api/v1/runs/%2e%2e/logs", "/api/v1/runs/good%00/logs",
        "/api/v1/runs/..%5cgood/logs", "/api/v1/runs/.hidden",
        "/api/v1/differences?before=../good&after=good",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_home(reader: Any, path: str) -> None:
    assert reader.ask(path).status in (400, 404)


@pytest.mark.parametrize(
    "path", ["/assets/../../etc/passwd", "/assets/%2e%2e/index.html", "/assets/x.js"]
)
def test_files_outside_the_app_do_not_exist(reader: Any, path: str) -> None:
    answer = reader.ask(f"http://localhost{path}", role=None)
    assert b"root:" not in answer.body
    assert answer.status == 404 or answer.body.startswith(b"<!doctype html>")


def test_every_answer_forbids_what_is_not_needed(reader: Any) -> None:
    for path in ("/", "/api/v1/runs", "/assets/none.js"):
        headers = reader.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_a_password_gives_a_cookie(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training_gym.dashboard.application.WRONG_PASSWORD_S", 0.0)
    guarded = reader.changed(password="correct horse")
    wrong = guarded.ask("/api/v1/session", method="POST", role=None, body={"password": "guess"})
    assert wrong.status == 401
    assert "set-cookie" not in wrong.headers
    right = guarded.ask(
        "/api/v1/session", method="POST", role=None, body={"password": "correct horse"}
    )
    cookie = right.headers["set-cookie"].split(";")[0]
    assert guarded.ask("/api/v1/session", role=None, cookie=cookie).json["role"] == "viewer"


def test_a_proxy_says_who_it_is(reader: Any) -> None:
    behind = reader.changed(header="x-user", editors=frozenset({"ada"}))
    assert behind.ask("/api/v1/session", role=None, x_user="bob").json["name"] == "bob"
    assert reader.ask("/api/v1/session", role=None, x_user="bob").status == 401


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("OPTIONS", "/api/v1/runs", "GET, HEAD"),
        ("TRACE", "/api/v1/runs/good/episodes", "GET, HEAD"),
        ("PATCH", "/api/v1/filters", "DELETE, GET, HEAD, PUT"),
        ("DELETE", "/api/v1/runs/good", "GET, HEAD"),
        ("GET", "/api/v1/runs/good/notes", "POST"),
        ("PUT", "/api/v1/session", "GET, HEAD, POST"),
        ("POST", "/metrics", "GET, HEAD"),
        ("POST", "/runs", "GET, HEAD"),
    ],
)
def test_a_method_that_an_address_does_not_take_is_told(
    reader: Any, method: str, path: str, allow: str
) -> None:
    answer = reader.ask(path, method=method)
    assert (answer.status, answer.headers["allow"]) == (405, allow)
    assert answer.json["error"]["fix"]


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS", "POST"])
def test_an_address_that_is_none_is_not_found_by_any_method(reader: Any, method: str) -> None:
    assert reader.ask("/api/v1/nothing/here", method=method).status == 404
    assert reader.ask("/api/v2/runs", method=method).status == 404
