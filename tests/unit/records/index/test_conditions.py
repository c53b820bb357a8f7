import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_gym.records.index.conditions import parse
from training_gym.spec.errors import SpecError


class Known:
    """Facts of a table."""

    def __init__(self, **values):
        self._values = {"eval/held_out": [0.1, 0.5, 0.9], "loss": [3.0, 2.0, 1.0], **values}

    def value(self, name):
        found = self._values.get(name)
        return found[-1] if isinstance(found, list) else found

    def values(self, name):
        return self._values.get(name, [])


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("step >= 20", True),
        ("step < 20", False),
        ("eval/held_out > 0.8", True),
        ("mean(loss, 2) == 1.5", True),
        ("mean(loss, 9) > 0", False),
        ("max(loss) == 3 and min(loss) == 1", True),
        ('status == "running" and not step > 30', True),
        ("status != 'running' or step == 20", True),
        ("not (step == 20 or step == 21) or step == 20", True),
        ("unknown > 1", False),
        ("unknown < 1", False),
        ("status > 1", False),
        ("step > -1e3", True),
        ("1 < step", True),
    ],
)
def test_conditions_say_what_they_say(text, holds):
    assert parse(text)(Known(step=20, status="running")) is holds


@pytest.mark.parametrize(
    "text",
    ["", "step", "step >", "> 1", "step > 1 step", "(step > 1", "step = 1", "mean(loss, 0) > 1",
     "__import__('os') > 1", "step > 1; 2", "and", "(" * 80 + "step > 1" + ")" * 80, "x" * 2000],
)  # fmt: skip
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(SpecError):
        parse(text)


@given(st.text(alphabet="abst ()<>=!,.0123456789'\"/andornot", max_size=40))
def test_any_text_is_a_condition_or_refused(text):
    try:
        condition = parse(text)
    except SpecError:
        return
    assert condition(Known(step=1)) in (True, False)
