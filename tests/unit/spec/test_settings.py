import math

import pytest

from training_gym.spec.errors import SpecError
from training_gym.spec.recipe import Recipe
from training_gym.spec.rewards import weighted
from training_gym.spec.run import Eval, RunSpec
from training_gym.spec.sampling import Sampling


def judge(episode):
    return 1.0


def spec(**values):
    return RunSpec(**{"model": "m", "dataset": ["a"], "reward": judge, **values})


@pytest.mark.parametrize(
    ("values", "message", "fix"),
    [
        ({"modle": "x"}, "RunSpec has no field 'modle'", "did you mean 'model'?"),
        ({"recipe": "grop"}, "no recipe is called 'grop'", "did you mean 'grpo'?"),
        ({"compute": "lokal"}, "no platform is called 'lokal'", "did you mean 'local'?"),
        ({"recipe": {"num_step": 3}}, "Recipe has no field 'num_step'", "did you mean 'num_steps'"),
        ({"recipe": {"engine": "slim"}}, "no engine is called 'slim'", "known: local"),
        ({"recipe": {"algorithm": {"kind": "gdpo"}}}, "'gdpo' is not one of the kinds", "'dpo'"),
        ({"recipe": {"num_steps": 0}}, "num_steps = 0", "give at least 1"),
        ({"recipe": {"sampling": {"top_p": 1.5}}}, "top_p = 1.5", "give at most 1"),
        ({"dataset": 3}, "dataset=3 is not a source of tasks", "list of rows"),
        ({"dataset": {"prompt": "a"}}, "is not a source of tasks", "list of rows"),
        ({"recipe": {"optimizer": {"learning_rate": math.inf}}}, "learning_rate = inf", "change"),
        ({"evals": Eval(name="e", dataset=["b"])}, "evals = Eval(name='e'", "change"),
        ({"recipe": {"algorithm": "dapo"}}, "algorithm = 'dapo'", "DAPO()"),
        ({"dataset": None}, "a run needs dataset", "change"),
        ({"model": ""}, "RunSpec.model = ''", "change"),
        ({"tags": "a"}, "RunSpec.tags = 'a' is one text where several", "write tags=['a']"),
    ],
)
def test_a_wrong_definition_is_two_lines(values, message, fix):
    with pytest.raises(SpecError) as caught:
        spec(**values)
    assert message in caught.value.message
    assert fix in caught.value.fix
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_a_weight_is_finite(weight):
    with pytest.raises(SpecError, match=r"RewardPart\.weight"):
        weighted(a=(judge, weight))


def test_values_are_frozen():
    with pytest.raises(SpecError, match=r"Sampling\.temperature cannot be set: values are frozen"):
        Sampling().temperature = 2.0
    with pytest.raises(SpecError, match="has no field 'temprature'"):
        Sampling().temprature = 2.0


def test_a_changed_copy_keeps_what_was_set_and_nothing_else():
    recipe = Recipe(num_steps=3).changed(seed=1)
    assert recipe.model_fields_set == {"num_steps", "seed"}
    with pytest.raises(SpecError, match="seed"):
        recipe.changed(seed="x")


def test_a_definition_survives_json():
    given = spec(evals=[Eval(name="e", dataset=["b"])], recipe="dapo")
    again = RunSpec.read_json(given.model_dump_json())
    assert again.model_dump() == given.model_dump()


def test_evaluations_given_in_short():
    assert [e.name for e in spec(eval_dataset=["b"]).evaluations] == ["eval"]
    held_out = spec(dataset={"kind": "file", "path": "x.csv", "eval_fraction": 0.1})
    assert [e.name for e in held_out.evaluations] == ["held_out"]
    with pytest.raises(SpecError, match="two evaluations"):
        spec(evals=[Eval(name="eval", dataset=["c"])], eval_dataset=["b"])
