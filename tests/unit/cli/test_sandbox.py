"""`sandbox run` passes output and exit code through; `sandbox doctor` tries every tier."""

from __future__ import annotations

import json
import sys
import tempfile

import pytest

from training_gym.cli.entry import run
from training_gym.cli.schemas import SCHEMAS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture(autouse=True)
def _home(monkeypatch):
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TRAINING_GYM_HOME", folder)
        yield


def test_output_and_exit_code_pass_through(capfd) -> None:
    assert run(["sandbox", "run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]) == 7
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("out\n", "err\n")


def test_json_has_the_tier_and_why_it_ended(capfd) -> None:
    arguments = ["sandbox", "run", "--json", "--timeout", "0.5", "--env", "A=b"]
    assert run([*arguments, "--", "sh", "-c", "echo $A; sleep 60"]) == 124
    captured = capfd.readouterr()
    told = json.loads(captured.out)
    assert set(told) == {"schema", *SCHEMAS["sandbox.run/1"]}
    assert (told["failure"], told["stdout"]) == ("exec_timeout", "b\n")
    assert told["tier"] in ("A", "B", "B2", "C")
    assert "raise timeout_s" in captured.err


def test_wrong_words_are_told(capfd) -> None:
    assert run(["sandbox", "run", "--mount", "here", "--", "true"]) == 2
    assert run(["sandbox", "run", "--provider", "locl", "--", "true"]) == 13
    assert "did you mean 'local'?" in capfd.readouterr().err
