"""Every address of the interface, taken from the application itself, attacked in turn.

A route that somebody adds is attacked as well: nobody has to remember it here.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from training_gym.dashboard import guard
from training_gym.records.index import searching
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory

SAFE = {"GET", "HEAD"}
OPEN = {("/{rest:path}", "GET"), ("/{rest:path}", "HEAD"), ("/api/v1/session", "POST")}
"""What whoever has no key may ask for: the pages, which hold nothing, and to sign in."""
ENDLESS = "/api/v1/stream"
TRAVERSALS = (
    *(
        "..",
        ".",
        "../outside",
        "..%2foutside",
        "%2e%2e%2foutside",
        "..%252foutside",
        "..%5coutside",
    ),
    *("%2e%2e", "good%2f..%2f..%2foutside", "%2fetc%2fpasswd", "good%00", "%00", ".hidden"),
    *("..%c0%afoutside", "%ff%fe", "good%0d%0aset-cookie:x", "%00..%2foutside", "x" * 5000),
)


def starlette_in(app: Any) -> Starlette:
    """What the guard and the compression stand before."""
    while not isinstance(app, Starlette):
        app = getattr(app, "app", None) or app._app
    return app


def addresses(routes: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Path, with its parameters, and method of every route."""
    for route in routes:
        if isinstance(route, Mount):
            yield from addresses(route.routes, before + route.path)
        else:
            assert isinstance(route, Route), route
            yield from ((before + route.path, method) for method in sorted(route.methods or ()))


@pytest.fixture(scope="session")
def every(reader: Any) -> list[tuple[str, str]]:
    found = list(addresses(starlette_in(reader.app).routes))
    assert len(found) > 40
    return found


@pytest.fixture(scope="session")
def known(reader: Any) -> dict[str, str]:
    """A value that exists for every parameter of a path."""
    row = reader.api("runs/good/episodes?limit=1")["episodes"][0]
    return {"run": "good", "episode": row["id"], "group": row["group"], "rest:path": "x"}


def filled(path: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        path = path.replace("{" + name + "}", value)
    assert "{" not in path, f"say in `known` what {path} could be"
    return path


@pytest.mark.parametrize(
    "credentials",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": b"Bearer \x80\xff"},
        {"authorization": "Basic ZWRpdG9yOmVkaXRvcg=="},
        {"authorization": "Bearer "},
        {"cookie": "training_gym=e30.xx"},
        {"cookie": "training_gym="},
        {"x-user": "ada", "x-forwarded-user": "ada"},
    ],
)
def test_without_a_key_there_is_nothing(
    reader: Any, every: Any, known: Any, credentials: dict[str, Any]
) -> None:
    for path, method in every:
        if (path, method) in OPEN:
            continue
        address = f"{filled(path, known)}?token={'wrong' if method != 'GET' else ''}"
        answer = reader.ask(address, method=method, role=None, **credentials)
        assert answer.status == 401, (method, path)


def test_a_key_in_the_address_of_the_interface_opens_nothing(reader: Any, every: Any) -> None:
    key = reader.access.key("editor")
    assert reader.ask(f"/api/v1/runs?token={key}", role=None).status == 401


@pytest.mark.parametrize("read_only", [False, True])
def test_who_only_reads_changes_nothing(
    reader: Any, every: Any, known: Any, read_only: bool
) -> None:
    server = reader.changed(read_only=read_only)
    for path, method in every:
        if method in SAFE or (path, method) in OPEN:
            continue
        role = "editor" if read_only else "viewer"
        answer = server.ask(filled(path, known), method=method, role=role, body={"text": "x"})
        assert answer.status == 403, (method, path)


def test_unheard_of_methods_are_refused(reader: Any, every: Any, known: Any) -> None:
    for path in {path for path, _ in every if path.startswith("/api")} - {ENDLESS}:
        for method in ("PATCH", "TRACE", "CONNECT", "PROPFIND"):
            answer = reader.ask(filled(path, known), method=method, body={})
            assert answer.status in (404, 405), (method, path)


@pytest.fixture
def outside(server: Any) -> Any:
    """A whole run beside the folder of runs: what a way out would lead to."""
    shutil.copytree(server.home / "runs" / "good", server.home / "outside")
    shutil.copytree(server.home / "runs" / "good", server.home / "runs" / ".hidden")
    return server


def written(home: Path) -> list[tuple[Path, int]]:
    """Every file but those of the index, and its size."""
    return sorted(
        (path, path.stat().st_size)
        for path in home.rglob("*")
        if path.is_file() and home / "cache" not in path.parents
    )


def test_no_parameter_of_a_path_leads_outside(outside: Any, every: Any, known: Any) -> None:
    before = written(outside.home)
    for path, method in every:
        if "{" not in path or not path.startswith("/api"):
            continue
        for name in known:
            for attack in TRAVERSALS if "{" + name + "}" in path else ():
                address = filled(path, {**known, name: attack})
                status, headers = send(outside, unquote(address), method=method, parts=[b"{}"])
                assert status in (400, 404, 405), (method, address)
                assert b"set-cookie" not in headers
    assert written(outside.home) == before


@pytest.mark.parametrize(
    "query",
    [
        "series?name=*&run=", "metric-names?run=", "compare?run=good&run=", "changes?run=",
        "differences?before=good&after=", "stream?run=",
    ],
)  # fmt: skip
def test_no_parameter_of_a_query_leads_outside(outside: Any, query: str) -> None:
    for attack in TRAVERSALS:
        answer = outside.ask(f"/api/v1/{query}{attack}")
        assert answer.status in (400, 404), (attack, answer.body[:200])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "-1"), ("limit", "9" * 400), ("limit", "1e9"), ("cursor", "e30="),
        ("cursor", "%ff"), ("cursor", "\u202e"), ("step", "x..y"), ("step", "nan..nan"),
        ("reward", "1e999.."), ("order", "e.time;--"), ("status", "' OR 1=1 --"), ("text", "%00"),
        ("nonsense", "1"), ("stream", "'; DROP TABLE episodes; --"), ("component", "a') --"),
    ],
)  # fmt: skip
def test_what_is_asked_of_episodes_breaks_nothing(reader: Any, name: str, value: str) -> None:
    answer = reader.ask(f"/api/v1/runs/good/episodes?{name}={quote(value, safe='%')}")
    assert answer.status in (200, 400), answer.body
    assert reader.api("runs/good/episodes?limit=1")["total"] > 0


@pytest.mark.parametrize("pattern", ["(a+)+$", "[", "(?P<x>", "\\", "(" * 500, "a{99999999999}"])
def test_a_regular_expression_of_somebody_elses_is_survived(reader: Any, pattern: str) -> None:
    answer = reader.ask(f"/api/v1/runs/hostile/logs?regex={quote(pattern)}")
    assert answer.status in (200, 400), answer.body


def test_a_pattern_that_would_take_forever_is_ended(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(server.home / "runs" / "good")
    with Recorder(run, writer="evil", attempt=1) as recorder:
        recorder.log("a" * 60 + "!")
    with monkeypatch.context() as patch:
        patch.setattr(searching, "LONGEST_S", 0.5)
        answer = server.ask("/api/v1/runs/good/logs?regex=" + quote("(a+)+$"))
    monkeypatch.setattr(searching, "LONGEST_S", 60.0)  # however busy this machine is
    assert answer.status == 400
    assert "takes too long" in answer.json["error"]["message"]
    found = server.api("runs/good/logs?regex=" + quote("^A{60}!$"))["lines"]
    assert [line["writer"] for line in found] == ["evil"]


BODIES = [
    b"", b"null", b"[]", b"{", b"\xff\xfe\x00", b'{"text": "\\ud800"}', b"1e999", b"NaN",
    b"[" * 100_000, b'{"a":' * 20_000, b'{"text": ' + b"9" * 5000 + b"}", b'{"text":"x","text":[]}',
]  # fmt: skip


def test_bodies_that_make_no_sense_change_nothing(server: Any, every: Any, known: Any) -> None:
    for path, method in every:
        if method in SAFE or path.endswith("{rest:path}"):
            continue
        for body in BODIES:
            answer = server.ask(filled(path, known), method=method, content=body)
            assert answer.status in (400, 401), (method, path, body[:40], answer.body)
    assert server.api("runs/good")["notes"] == []
    assert server.api("filters")["filters"] == []


def send(
    server: Any,
    path: str = "/api/v1/runs/good/notes",
    *,
    method: str = "POST",
    key: bool = True,
    parts: list[bytes | float],
) -> tuple[int, dict[bytes, bytes]]:
    """Status and headers of a request as it is: no client makes its path good.

    The body comes in parts; a number is a pause of so many seconds.
    """
    said: list[Any] = []
    waiting = iter(parts)

    async def receive() -> dict[str, Any]:
        for part in waiting:
            if isinstance(part, float):
                await asyncio.sleep(part)
                continue
            return {"type": "http.request", "body": part, "more_body": True}
        return {"type": "http.request", "body": b"", "more_body": False}

    async def answer(message: Any) -> None:
        said.append(message)

    sent = {"host": "localhost", "content-type": "application/json"}
    if key:
        sent["authorization"] = f"Bearer {server.access.key('editor')}"
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": b"",
        "root_path": "", "scheme": "http", "query_string": b"",
        "headers": [(k.encode(), v.encode()) for k, v in sent.items()],
        "client": ("127.0.0.1", 1), "server": ("localhost", 80), "asgi": {"version": "3.0"},
    }  # fmt: skip
    asyncio.run(server.app(scope, receive, answer))
    return said[0]["status"], dict(said[0]["headers"])


def test_a_body_without_end_is_refused(reader: Any) -> None:
    endless: list[bytes | float] = [b"x" * 65536] * 1000
    assert send(reader, parts=endless)[0] == 413
    assert send(reader, parts=endless, key=False)[0] == 401


def test_a_body_that_takes_too_long_is_refused(
    reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.2)
    assert send(reader, parts=[b"{", 60.0, b"}"])[0] == 408
    drops = [part for _ in range(1000) for part in (b" ", 0.01)]
    assert send(reader, parts=drops)[0] == 408


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:7860", "localhost.evil.example", "127.0.0.1.nip.io", "",
        "localhost@evil.example", "evil.example#localhost", "[::1", "[::ffff:127.0.0.1]",
        "0.0.0.0", "2130706433", "localhost evil.example", "127.1",
    ],
)  # fmt: skip
def test_no_other_host_name_is_answered(reader: Any, every: Any, known: Any, host: str) -> None:
    for path, method in every:
        answer = reader.ask(filled(path, known), method=method, host=host, body={})
        assert answer.status == 421, (method, path)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://localhost:1"},
        {"origin": "http://localhost.evil.example"}, {"origin": ""},
        {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"},
        {"content-type": "text/plain"}, {"content-type": "multipart/form-data"},
        {"content-type": "application/json+x"},
    ],
)  # fmt: skip
def test_no_other_sites_page_writes_anywhere(
    reader: Any, every: Any, known: Any, headers: dict[str, str]
) -> None:
    for path, method in every:
        if method in SAFE:
            continue
        answer = reader.ask(filled(path, known), method=method, content=b"{}", **headers)
        assert answer.status in (403, 415), (method, path)


def test_no_answer_lets_another_site_read(reader: Any, every: Any, known: Any) -> None:
    for path, method in every:
        if path == ENDLESS:
            continue
        answer = reader.ask(filled(path, known), method=method, origin="http://evil.example")
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_hostile_content_is_data(reader: Any) -> None:
    """Markup, escapes and lines of megabytes arrive as JSON text, cut where they are long."""
    lines = reader.api("runs/hostile/logs?limit=1000")["lines"]
    assert max(len(line["text"]) for line in lines) <= 65_536
    answer = reader.ask("/api/v1/runs/hostile/episodes?limit=200")
    assert answer.headers["content-type"] == "application/json"
    assert b"\x1b" not in answer.body
    assert "<script>" in json.dumps(answer.json)
