"""Errors name the option that was typed."""

import pytest

from training_gym.cli.entry import run
from training_gym.cli.wording import options_named
from training_gym.spec.errors import SpecError


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["sandbox", "run", "--timeout", "-1", "--", "true"], "--timeout"),
        (["sandbox", "run", "--processes", "0", "--", "true"], "--processes"),
        (["sandbox", "run", "--memory", "0", "--", "true"], "--memory"),
        (["sandbox", "size", "--episodes", "3", "--hold-time", "-1"], "--hold-time"),
        (["sandbox", "size", "--episodes", "3", "--failure-time", "-1"], "--failure-time"),
    ],
)
def test_an_option_is_called_what_it_was_typed_as(arguments, option, capsys):
    assert run(arguments) == SpecError.exit_code
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {option} = ")
    assert second.startswith(("fix: give at least ", "fix: give more than "))


def test_a_name_that_begins_another_is_left_alone_in_it():
    names = {"A.b": "--one", "A.b_s": "--two"}
    with pytest.raises(SpecError, match=r"^--two is wrong") as caught, options_named(names):
        raise SpecError("A.b_s is wrong", fix="change A.b")
    assert caught.value.fix == "change --one"
