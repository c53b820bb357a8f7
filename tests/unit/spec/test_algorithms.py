"""Algorithms as values: nothing they say is idle, and they travel as they are."""

import math

import pytest

from training_gym.spec.algorithms import (
    ALGORITHMS,
    DAPO,
    DPO,
    GRPO,
    PPO,
    SFT,
    Distill,
    FullVocabulary,
    ReinforcePlusPlus,
    needs_a_group,
)
from training_gym.spec.companions import companion_name, needs_reference, with_companion
from training_gym.spec.errors import SpecError
from training_gym.spec.loss_terms import MIS, IcePop, LossKL, RewardKL
from training_gym.spec.recipe import RECIPES, Recipe
from training_gym.spec.run import RunSpec


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (DAPO, {"skip_equal_groups": False}, "dynamic_sampling replaces groups"),
        (DAPO, {"overlong_penalty": 0.5}, "no effect without overlong_buffer_tokens"),
        (DAPO, {"dynamic_sampling": False, "max_resampled_batches": 2}, "no effect without dyn"),
        (GRPO, {"dual_clip": 1.1}, "dual_clip 1.1 is not above 1 + clip_high"),
        (GRPO, {"gae_lambda": 1.0}, "GRPO has no field 'gae_lambda'"),
        (GRPO, {"clip_low": math.inf}, "clip_low = inf"),
        (GRPO, {"kl": {"kind": "lost"}}, "'lost' is not one of the kinds"),
        (DPO, {"loss": "ipo", "label_smoothing": 0.1}, "label_smoothing has no effect"),
        (LossKL, {"estimator": "k1", "gradient": "plain"}, "gradient of k1 as it stands is zero"),
        (IcePop, {"floor": 2.0, "cap": 1.0}, "floor 2 is not below cap 1"),
        (Distill, {}, "Distill.teacher is missing"),
        (PPO, {"discount": 0.0}, "discount = 0"),
    ],
)
def test_what_contradicts_itself_is_refused_in_two_lines(kind, values, message):
    with pytest.raises(SpecError) as caught:
        kind(**values)
    assert message in caught.value.message
    assert caught.value.fix


def example(kind):
    return kind(teacher="t") if kind is Distill else kind()


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_every_algorithm_travels_in_a_recipe(kind):
    recipe = Recipe(algorithm=example(kind))
    read = Recipe.read_json(recipe.model_dump_json())
    assert read == recipe
    assert type(read.algorithm) is kind
    with pytest.raises(SpecError, match=f"give {kind.__name__}\\("):
        Recipe(algorithm="reinforce++" if kind is ReinforcePlusPlus else recipe.algorithm.kind)


def test_terms_travel_with_their_kinds():
    algorithm = GRPO(kl=RewardKL(coefficient=0.1), correction=MIS(cap=3))
    assert GRPO.read_json(algorithm.model_dump_json()) == algorithm
    full = Distill(teacher="t", loss=FullVocabulary(mixture=0.5))
    assert Recipe.read_json(Recipe(algorithm=full).model_dump_json()).algorithm == full


def test_every_algorithm_that_needs_no_teacher_has_a_recipe_of_its_own():
    assert {type(recipe.algorithm) for recipe in RECIPES.values()} == {*ALGORITHMS} - {Distill}
    assert all(recipe.name == name for name, recipe in RECIPES.items())


def test_who_needs_a_group():
    lone = {kind.__name__ for kind in ALGORITHMS if not needs_a_group(example(kind))}
    assert lone == {"ReinforcePlusPlus", "PPO", "Distill", "SFT", "DPO", "SimPO"}
    assert needs_a_group(ReinforcePlusPlus(group_baseline=True))


@pytest.mark.parametrize(
    ("algorithm", "needed", "name"),
    [
        (GRPO(), False, None),
        (GRPO(kl=LossKL()), True, None),
        (PPO(kl=RewardKL(reference="base")), True, "base"),
        (DPO(), True, None),
        (DPO(reference="base"), True, "base"),
        (Distill(teacher="base"), False, "base"),
        (SFT(), False, None),
    ],
)
def test_companions(algorithm, needed, name):
    assert needs_reference(algorithm) == needed
    assert companion_name(algorithm) == name
    if name is not None:
        assert companion_name(with_companion(algorithm, "/abs/base")) == "/abs/base"


def test_learning_from_answers_plays_no_episodes():
    with pytest.raises(SpecError, match=r"with given answers \(DPO\) no episodes"):
        RunSpec(model="m", dataset=["a"], environment="envs:Game", recipe="dpo")
