import os
import time
from pathlib import Path

import pytest

from training_gym.dashboard.access import Access, Identity, read_secret
from training_gym.dashboard.serving import Serving, access_of, addresses, host_names
from training_gym.spec.errors import PlatformError, SpecError

ACCESS = Access(b"s" * 32, owner="ada")


def test_each_role_has_a_key_of_its_own() -> None:
    assert ACCESS.by_key(ACCESS.key("editor")) == Identity("editor", "ada")
    assert ACCESS.by_key(ACCESS.key("viewer")) == Identity("viewer", "guest")
    assert ACCESS.by_key(Access(b"t" * 32).key("editor")) is None
    assert ACCESS.by_key("") is None


def test_a_cookie_holds_no_key_and_ends() -> None:
    cookie = ACCESS.cookie(Identity("editor", "ada"))
    assert ACCESS.key("editor") not in cookie
    assert ACCESS.by_cookie(cookie) == Identity("editor", "ada")
    assert ACCESS.by_cookie(cookie[:-2] + "xx") is None
    assert Access(b"t" * 32).by_cookie(cookie) is None


def test_an_old_cookie_lets_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = ACCESS.cookie(Identity("viewer", "guest"))
    later = time.time() + 31 * 86400
    monkeypatch.setattr(time, "time", lambda: later)
    assert ACCESS.by_cookie(cookie) is None


def test_read_only_makes_everybody_a_viewer() -> None:
    access = Access(b"s" * 32, read_only=True, password="correct horse", password_role="editor")
    assert access.by_key(access.key("editor")) == Identity("viewer", "owner")
    assert access.by_password("correct horse") == Identity("viewer", "guest")


def test_a_password_signs_in_and_a_wrong_one_does_not() -> None:
    access = Access(b"s" * 32, password="correct horse")
    assert access.by_password("correct horse") == Identity("viewer", "guest")
    assert access.by_password("correct hors") is None
    assert ACCESS.by_password("") is None


def test_a_proxy_is_believed_only_where_it_is_trusted() -> None:
    access = Access(b"s" * 32, header="x-user", editors=frozenset({"ada"}))
    assert access.by_header({"x-user": "ada"}, "127.0.0.1") == Identity("editor", "ada")
    assert access.by_header({"x-user": "bob"}, "127.0.0.1") == Identity("viewer", "bob")
    assert access.by_header({"x-user": "ada"}, "10.0.0.9") is None
    assert ACCESS.by_header({"x-user": "ada"}, "127.0.0.1") is None


def test_the_secret_is_kept_and_private(tmp_path: Path) -> None:
    path = tmp_path / "dashboard" / "secret"
    first = read_secret(path)
    assert read_secret(path) == first
    assert path.stat().st_mode & 0o077 == 0
    assert read_secret(path, new=True) != first


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    read_secret(path)
    os.chmod(path, 0o644)
    with pytest.raises(PlatformError, match="can be read by others"):
        read_secret(path)


def test_a_damaged_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    read_secret(path)
    path.write_bytes(b"short")
    with pytest.raises(PlatformError, match="5 bytes"):
        read_secret(path)


def test_addresses_carry_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path))
    serving = Serving(port=7860)
    found = addresses(serving, 7860, access_of(serving))
    assert found["editor"].startswith("http://127.0.0.1:7860/?token=")
    assert found["editor"] != found["viewer"]
    assert list(addresses(Serving(read_only=True), 1, access_of(serving))) == ["viewer"]


def test_options_that_cannot_work_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path))
    with pytest.raises(SpecError, match="3 characters"):
        access_of(Serving(password="abc"))
    with pytest.raises(SpecError, match="--editor"):
        access_of(Serving(editors=("ada",)))


def test_it_answers_to_its_own_names_only() -> None:
    assert host_names(Serving()) == {"localhost", "127.0.0.1", "::1"}
    assert "gym.example" in host_names(Serving(allow_hosts=("gym.example",)))
    assert "0.0.0.0" not in host_names(Serving(host="0.0.0.0"))
