"""What the embedded engine says of settings before anything is loaded."""

import pytest

from training_gym import SFT, LocalEngine, Recipe, RunSpec
from training_gym.engines.local.engine import LocalEngine as Engine
from training_gym.spec.errors import SpecError
from training_gym.spec.forms import AnswerForm
from training_gym.spec.sampling import Sampling


def refused(algorithm=None, sampling=None, **engine):
    fields = {} if algorithm is None else {"algorithm": algorithm}
    fields |= {} if sampling is None else {"sampling": sampling}
    recipe = Recipe(engine=LocalEngine(**engine), **fields)
    run = RunSpec(model="m", dataset=[{"prompt": "p"}], recipe=recipe)
    return [entry.path for entry in Engine().supports(run).refused]


@pytest.mark.parametrize(
    ("engine", "paths"),
    [
        ({"sampler": "vllm", "deterministic": False}, []),
        ({"sampler": {"memory_fraction": 0.2}, "deterministic": False}, []),
        ({"sampler": "embedded"}, []),
        ({"sampler": "vllm"}, ["recipe.engine.sampler"]),
        (
            {"sampler": "vllm", "deterministic": False, "data_parallel": 2},
            ["recipe.engine.sampler"],
        ),
        ({"sampler": "vllm", "deterministic": False, "device": "mps"}, ["recipe.engine.sampler"]),
        (
            {"sampler": {"memory_fraction": 0.2}, "deterministic": False, "device": "cpu"},
            ["recipe.engine.sampler.memory_fraction"],
        ),
        (
            {"sampler": {"cpu_cache_gib": 4}, "deterministic": False, "device": "cuda"},
            ["recipe.engine.sampler.cpu_cache_gib"],
        ),
        ({"graphs": True}, []),
        ({"graphs": True, "device": "cuda"}, []),
        ({"graphs": False, "device": "cpu"}, []),
        ({"graphs": True, "device": "cpu"}, ["recipe.engine.graphs"]),
        ({"graphs": True, "device": "mps"}, ["recipe.engine.graphs"]),
        ({"graphs": True, "sampler": "vllm", "deterministic": False}, ["recipe.engine.graphs"]),
        ({"spin_threads": True}, []),
        ({"spin_threads": True, "threads": 2}, []),
        ({"threads": 1}, []),
        ({"spin_threads": True, "threads": 1}, ["recipe.engine.spin_threads"]),
        # Where answers are given it is looked at all the same.
        ({"algorithm": SFT(), "sampler": "vllm"}, ["recipe.engine.sampler"] * 2),
        (
            {"algorithm": SFT(), "sampler": "vllm", "deterministic": False},
            ["recipe.engine.sampler"],
        ),
    ],
)
def test_who_may_sample(engine, paths):
    assert refused(**engine) == paths


def test_a_form_is_held_by_the_embedded_sampler_alone():
    held = Sampling(form=AnswerForm(content_schema="{}"))
    assert refused(sampling=held) == []
    assert refused(sampling=held, sampler="vllm", deterministic=False) == ["recipe.engine.sampler"]


def test_a_misspelt_sampler_is_named():
    with pytest.raises(SpecError, match="no sampler is called 'vlm'") as caught:
        LocalEngine(sampler="vlm")
    assert "vllm" in caught.value.fix


@pytest.mark.parametrize(("environment", "paths"), [(None, ["recipe.max_turns"]), ("m:Game", [])])
def test_turns_need_an_environment_that_takes_them(environment, paths):
    run = RunSpec(
        model="m",
        dataset=[{"prompt": "p"}],
        environment=environment and {"ref": environment},
        recipe=Recipe(max_turns=5),
    )
    assert [entry.path for entry in Engine().supports(run).refused] == paths
