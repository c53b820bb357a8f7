"""Numbers that no run can mean are refused where they are written."""

import pytest

from training_gym import GRPO, LocalEngine, Lora, Recipe
from training_gym.rewards.graders import FunctionCases
from training_gym.rewards.library import NumericMatch
from training_gym.spec.errors import SpecError
from training_gym.spec.health import Bounds, Thresholds
from training_gym.spec.sampling import Sampling


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Recipe, {"num_steps": 1e24}),
        (Recipe, {"group_size": 10**8}),
        (LocalEngine, {"threads": 10**21}),
        (Recipe, {"reward_workers": 10**9}),
        (Bounds, {"warning": float("nan"), "critical": 1}),
        (Bounds, {"warning": -1, "critical": 1}),
        (Thresholds, {"kl_floor": float("nan")}),
        (FunctionCases, {"concurrency": 0}),
        (Recipe, {"seed": 10**26}),
        (GRPO, {"passes": 10**6}),
        (Lora, {"target_modules": ()}),
        (Lora, {"rank": 10**30}),
        (NumericMatch, {"tolerance": float("inf")}),
    ],
)
def test_an_absurd_number_is_refused(kind, values):
    with pytest.raises(SpecError) as caught:
        kind(**values)
    assert next(iter(values)) in caught.value.message


def test_a_rule_may_never_alarm():
    assert Bounds(warning=1, critical=float("inf")).critical == float("inf")


def test_an_answer_has_one_limit():
    assert Recipe(sampling=Sampling(max_tokens=8), max_response_tokens=8).max_response_tokens == 8
    with pytest.raises(SpecError, match="give max_response_tokens=4 alone"):
        Recipe(sampling=Sampling(max_tokens=4), max_response_tokens=8)
