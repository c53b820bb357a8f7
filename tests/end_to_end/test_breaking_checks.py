"""What goes wrong before a job starts: each case is caught by the checks, in two lines."""

import json
import shutil
import struct

import pytest

from training_gym.models.weights.tiny import tiny_model

CASES = {
    "a reward that raises": (
        {"reward": "return {'good': 1.0}[episode.completion]"},
        5,
        ("KeyError", "'reward'", "when the model's answer was"),
    ),
    "a reward that hangs": (
        {"reward": "time.sleep(600)", "sets": ("recipe.reward_timeout_s=0.5",)},
        5,
        ("'reward' took longer than reward_timeout_s = 0.5",),
    ),
    "a reward that is NaN": ({"reward": "return math.nan"}, 5, ("nan", "'reward'")),
    "a reward that is a string": ({"reward": "return 'good'"}, 5, ("'good'", "'reward'")),
    "an empty dataset": ({"dataset": "[]"}, 3, ("no rows",)),
    "one row, and it is held out": (
        {"dataset": "ROWS[:1]", "more": "eval_dataset=[]"},
        3,
        ("no rows",),
    ),
    "prompts longer than the context": (
        {"dataset": "[{'prompt': 'long ' * 1000}]"},
        3,
        ("1 of 1 prompts measured are longer than", "shorten the prompts"),
    ),
    "a group of one episode": (
        {"sets": ("recipe.group_size=1",)},
        2,
        ("group_size = 1", "set group_size to 2 or more"),
    ),
    "a misspelt field": (
        {"more": "requirement=()"},
        2,
        ("'requirement'", "did you mean 'requirements'?"),
    ),
    "a misspelt --set key": (
        {"sets": ("recipe.num_stepz=3",)},
        2,
        ("--set recipe.num_stepz", "did you mean 'num_steps'?"),
    ),
    "a --set value of another type": ({"sets": ("recipe.num_steps=many",)}, 2, ("num_steps",)),
}


@pytest.fixture
def runs_of(home):
    return lambda: set((home / "runs").glob("*")) if (home / "runs").exists() else set()


@pytest.mark.parametrize("case", CASES)
def test_is_caught_before_a_job_starts(command, define, runs_of, case):
    changes, code, words = CASES[case]
    sets = [part for given in changes.get("sets", ()) for part in ("--set", given)]
    file = define(**{name: value for name, value in changes.items() if name != "sets"})
    before = runs_of()
    done = command("train", file, *sets)
    assert done.code == code, done.err
    for word in words:
        assert word in done.two_lines
    assert done.out == ""
    assert runs_of() == before


@pytest.fixture
def broken_model(tiny, tmp_path):
    """A copy of the tiny model whose weights or configuration a test may damage."""
    return shutil.copytree(tiny, tmp_path / "broken")


def cut(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    return folder


def garble(folder):
    file = folder / "model.safetensors"
    file.write_bytes(b"<html>not found</html>" + file.read_bytes()[22:])
    return folder


def lose(folder):
    (folder / "model.safetensors").unlink()
    return folder


def cut_gguf(folder):
    """A GGUF file whose one tensor is promised but not there."""

    def text(value):
        return struct.pack("<Q", len(value)) + value

    entry = text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")
    tensor = text(b"token_embd.weight") + struct.pack("<IQQIQ", 2, 64, 256, 0, 0)
    file = folder / "cut.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + entry + tensor + bytes(1000))
    return file


def foreign_gguf(folder):
    file = folder / "page.gguf"
    file.write_text("<html>not found</html>")
    return file


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, ("model.safetensors is damaged", "fetch the model again")),
        (garble, ("model.safetensors is damaged", "fetch the model again")),
        (lose, ("model.safetensors",)),
        (cut_gguf, ("cut.gguf is cut short", "download the file again")),
        (foreign_gguf, ("page.gguf is not a usable GGUF file", "download the file again")),
    ],
)
def test_a_damaged_model_is_refused(command, define, runs_of, broken_model, damage, words):
    before = runs_of()
    done = command("train", define(model=damage(broken_model)))
    assert done.code == 4, done.err
    for word in words:
        assert word in done.two_lines
    assert runs_of() == before


def test_a_model_without_a_chat_template_completes_texts_only(command, define, tmp_path):
    base = tiny_model(tmp_path / "base", chat_template=False)
    done = command("train", define(model=base))
    assert done.code == 4, done.err
    assert "has no chat template" in done.two_lines
    assert 'input_format="raw"' in done.two_lines
    raw = define(model=base, dataset="[{'prompt': 'Once', 'answer': 'upon'}]")
    done = command("train", raw, "--set", "dataset.input_format=raw", "--dry-run")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reward": "return 1.0"}, ("'reward' was 1 for all of", "[reward.constant]")),
        ({"reward": "return None"}, ("'reward' returned None for all of", "[reward.never_judges]")),
        ({"dataset": "ROWS[:1]"}, ("1 task(s), but a batch takes 2", "[data.few]")),
        (
            {"dataset": "[*ROWS, {'prompt': 'long ' * 1000}]"},
            ("1 of 9 prompts measured are longer than", "left out", "[data.too_long]"),
        ),
    ],
)
def test_what_may_be_meant_is_a_warning(command, define, changes, words):
    done = command("train", define(**changes), "--dry-run", "--json")
    assert done.code == 0, done.err
    for word in words:
        assert word in done.err
    assert json.loads(done.out)["plan"]


def test_a_read_only_home_is_refused(command, define, small_disk, remount_read_only, monkeypatch):
    place = small_disk(4)
    remount_read_only(place)
    monkeypatch.setenv("TRAINING_GYM_HOME", str(place))
    done = command("train", define())
    assert done.code == 11, done.err
    assert "Read-only file system" in done.two_lines
    assert "TRAINING_GYM_HOME" in done.two_lines


def test_a_disk_too_small_for_the_checkpoints_is_refused(command, define, small_disk, monkeypatch):
    place = small_disk(20)
    monkeypatch.setenv("TRAINING_GYM_HOME", str(place))
    done = command("train", define())
    assert done.code == 11, done.err
    assert "GB free" in done.two_lines
    assert list((place / "runs").glob("*")) == []


def test_several_things_at_once_are_still_two_lines(command, define):
    done = command("train", define(reward="return 'good'"), "--set", "recipe.group_size=1")
    assert done.code == 7, done.err
    assert "2 things would make this run fail" in done.two_lines
    assert "[recipe.group_of_one]" in done.two_lines
    assert "[reward.invalid]" in done.two_lines
