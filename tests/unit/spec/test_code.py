from dataclasses import dataclass

import pytest

from training_gym.rewards.library import RegexMatch
from training_gym.spec.code import Code
from training_gym.spec.errors import SourceError, SpecError
from training_gym.spec.rewards import WeightedReward, weighted


def judge(episode):
    return 1.0


@dataclass
class Scaled:
    factor: float = 2.0

    def __call__(self, episode):
        return self.factor


class Holding:
    def __init__(self):
        self.open = object()


def test_functions_classes_and_instances_have_an_address():
    assert Code.of(judge).ref.endswith("test_code:judge")
    assert Code.of(Scaled).kwargs is None
    assert Code.of(Scaled(3.0)).kwargs == {"factor": 3.0}
    assert Code.of(RegexMatch(pattern="a+")).kwargs == {"pattern": "a+"}


def test_what_is_held_here_is_not_imported_again():
    assert Code.of(judge).load() is judge


def test_a_reference_loads_in_another_process():
    code = Code(ref="training_gym.rewards.library:RegexMatch", kwargs={"pattern": "b"})
    assert code.load() == RegexMatch(pattern="b")


def closure():
    def inner(episode):
        return 1.0

    return inner


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (lambda episode: 1.0, "lambda"),
        (closure(), "'inner' is defined inside 'closure'"),
        (Holding(), "'Holding' holds state"),
        (Scaled(object()), "an argument of 'Scaled'"),
    ],
)
def test_what_cannot_travel_is_refused_by_name(target, words):
    with pytest.raises(SourceError, match=words):
        Code.of(target)


@pytest.mark.parametrize("target", [3, [1], {"a": 1}, "just_a_name", "module:"])
def test_what_is_no_code_is_refused(target):
    with pytest.raises(SourceError, match="function"):
        Code.of(target)


@pytest.mark.parametrize("ref", ["no_such_module:f", "json:no_such_name", "json"])
def test_a_reference_that_leads_nowhere_is_said(ref):
    with pytest.raises(SourceError) as caught:
        Code(ref=ref).load()
    assert ref.partition(":")[0] in caught.value.message


def test_rewards_are_composed_by_name_and_weight():
    composed = weighted(right=(judge, 1.0), brief=Scaled(0.5))
    assert [(part.name, part.weight) for part in composed.parts] == [("right", 1.0), ("brief", 1.0)]
    with pytest.raises(SpecError, match="no rewards"):
        weighted()
    with pytest.raises(SpecError, match="two parts are called 'right'"):
        WeightedReward(parts=(composed.parts[0], composed.parts[0]))
