"""Where the home lies, and that looking at it makes none."""

from pathlib import Path

import pytest

from training_gym.cli.entry import run
from training_gym.spec.errors import SpecError
from training_gym.spec.home import home


def test_the_home_is_absolute_wherever_one_goes_afterwards(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINING_GYM_HOME", "here")
    assert home() == Path.cwd() / "here"
    monkeypatch.setenv("TRAINING_GYM_HOME", "~/gym")
    assert home() == Path.home() / "gym"
    monkeypatch.delenv("TRAINING_GYM_HOME")
    assert home() == Path.home() / ".training-gym"


@pytest.mark.parametrize("named", ["", "  ", "~nobody-of-this-name/gym"])
def test_a_variable_that_names_no_folder_is_refused(monkeypatch, named):
    monkeypatch.setenv("TRAINING_GYM_HOME", named)
    with pytest.raises(SpecError, match="TRAINING_GYM_HOME"):
        home()
    assert run(["runs", "list"]) == 2


@pytest.mark.parametrize("words", ["status", "runs list", "runs show x", "models list", "doctor"])
def test_looking_makes_no_home(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINING_GYM_HOME", "mistyped")
    run(words.split())
    assert list(tmp_path.iterdir()) == []
