from collections.abc import Callable

import pytest

from training_gym.planning import apply_sets
from training_gym.spec.algorithms import DAPO
from training_gym.spec.datasets import RowsDataset
from training_gym.spec.errors import SpecError
from training_gym.spec.recipe import Vllm
from training_gym.spec.run import RunSpec


def defined() -> RunSpec:
    return RunSpec(
        model="m",
        dataset=["x", "y"],
        reward="r:f",
        recipe="sft",
        evals=[{"name": "held_out", "dataset": ["z"]}, {"name": "other", "dataset": ["z"]}],
    )


@pytest.mark.parametrize(
    ("assignment", "read"),
    [
        ("recipe.num_steps=3", lambda run: run.recipe.num_steps == 3),
        (
            "recipe.optimizer.learning_rate=1e-4",
            lambda run: run.recipe.optimizer.learning_rate == 1e-4,
        ),
        ("recipe.engine.slots=3", lambda run: run.recipe.engine.slots == 3),
        ("recipe.engine.deterministic=false", lambda run: run.recipe.engine.deterministic is False),
        ("recipe.algorithm=dapo", lambda run: run.recipe.algorithm == DAPO()),
        ('recipe.adapter={"rank": 4}', lambda run: run.recipe.adapter.rank == 4),
        ("recipe.engine.sampler=vllm", lambda run: run.recipe.engine.sampler == Vllm()),
        ("recipe=grpo", lambda run: run.recipe.name == "grpo"),
        ("name=123", lambda run: run.name == "123"),
        ("name=a=b", lambda run: run.name == "a=b"),
        ('tags=["a", "b"]', lambda run: run.tags == ("a", "b")),
        ("evals.held_out.samples=4", lambda run: run.evals[0].samples == 4),
        ("evals.1.samples=5", lambda run: run.evals[1].samples == 5),
    ],
)
def test_a_value_is_read_as_its_field_means_it(
    assignment: str, read: Callable[[RunSpec], bool]
) -> None:
    assert read(apply_sets(defined(), [assignment]))


def test_later_values_win_and_the_rest_stays() -> None:
    changed = apply_sets(defined(), ["recipe.num_steps=3", "recipe.num_steps=4"])
    assert changed.recipe.num_steps == 4
    assert changed.recipe.group_size == 1
    assert changed.model == "m"


def test_null_takes_a_value_back() -> None:
    changed = apply_sets(defined(), ["recipe.engine.slots=3", "recipe.engine.slots=null"])
    assert changed.recipe.engine.slots is None


def test_rows_in_memory_survive_a_change_of_their_dataset() -> None:
    changed = apply_sets(defined(), ["dataset.limit=1"])
    assert isinstance(changed.dataset, RowsDataset)
    assert changed.dataset.limit == 1
    assert changed.dataset.rows == ["x", "y"]


@pytest.mark.parametrize(
    ("assignment", "message", "fix"),
    [
        ("recipe.num_step=3", "Recipe has no field 'num_step'", "did you mean 'num_steps'?"),
        ("recip.num_steps=3", "has no field 'recip'", "did you mean 'recipe'?"),
        ("recipe.num_steps=three", "--set recipe.num_steps", "change Recipe.num_steps"),
        ("recipe.num_steps=0", "Recipe.num_steps = 0", "give at least 1"),
        ("recipe.num_steps", "is not key=value", "write --set recipe.num_steps=3"),
        ("recipe=grppo", "no recipe is called 'grppo'", "did you mean 'grpo'?"),
        ("evals.helt_out.samples=2", "there is no 'helt_out'", "did you mean 'held_out'?"),
        ("model.size=2", "model is 'm' and has no fields", "set it whole"),
        ("eval_dataset.limit=2", "eval_dataset is not set", "give eval_dataset in the file first"),
    ],
)
def test_a_wrong_assignment_is_two_lines(assignment: str, message: str, fix: str) -> None:
    with pytest.raises(SpecError) as refused:
        apply_sets(defined(), [assignment])
    assert message in refused.value.message
    assert fix in refused.value.fix
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("assignment", "absent", "turned_on"),
    [
        (
            "recipe.engine.sampler.memory_fraction=0.5",
            "sampler",
            'recipe.engine.sampler={"memory_fraction": 0.5}',
        ),
        ("recipe.adapter.rank=4", "adapter", 'recipe.adapter={"rank": 4}'),
        (
            "evals.held_out.sampling.temperature=0",
            "sampling",
            'evals.held_out.sampling={"temperature": 0}',
        ),
    ],
)
def test_a_part_of_an_absent_section_does_not_turn_it_on(
    assignment: str, absent: str, turned_on: str
) -> None:
    with pytest.raises(SpecError) as refused:
        apply_sets(defined(), [assignment])
    assert f"{absent} is not set, and setting a part of it does not turn it on" in (
        refused.value.message
    )
    assert refused.value.fix == f"to turn it on, write --set '{turned_on}'"
    changed = apply_sets(defined(), [turned_on])
    assert apply_sets(changed, [assignment]) == changed


def test_a_misspelt_part_of_an_absent_section_is_named() -> None:
    with pytest.raises(SpecError, match="Lora has no field 'rang'") as refused:
        apply_sets(defined(), ["recipe.adapter.rang=4"])
    assert "rank" in refused.value.fix
