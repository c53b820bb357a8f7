from pathlib import Path
from typing import Any

import pytest

from training_gym.dashboard.assets import APP, WebApp
from training_gym.spec.errors import PlatformError

MOST_PACKED_BYTES = 120 * 1024


def test_every_address_shows_the_app(reader: Any) -> None:
    for path in ("/", "/runs", "/runs/good/overview", "/compare?runs=a"):
        answer = reader.ask(path, role=None)
        assert answer.status == 200
        assert answer.body.startswith(b"<!doctype html>")
        assert answer.headers["cache-control"] == "no-cache"


def test_what_has_not_changed_is_not_sent_again(reader: Any) -> None:
    first = reader.ask("/", role=None)
    again = reader.ask("/", role=None, if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


def test_hashed_files_are_kept_for_ever(reader: Any) -> None:
    answer = reader.ask("/assets/index-abc.js", role=None, accept_encoding="gzip")
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.body == b"1;" * 2000  # unpacked by the client
    assert reader.ask("/assets/gone.js", role=None).status == 404


def test_without_a_built_app_it_says_how_to_build(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="not built") as told:
        WebApp(tmp_path)
    assert "make dashboard" in told.value.fix


@pytest.mark.skipif(not (APP / "index.html").exists(), reason="the web app is not built here")
def test_the_built_app_is_small_and_asks_nobody_else() -> None:
    assert WebApp().packed_bytes <= MOST_PACKED_BYTES
    for path in APP.rglob("*"):
        if path.suffix in (".html", ".css"):
            text = path.read_text().replace("http://www.w3.org/", "")
            assert "http://" not in text
            assert "https://" not in text
            assert " style=" not in text
