"""What the embedded engine says of settings before anything is loaded."""

import pytest

from training_gym import LocalEngine, Recipe, RunSpec
from training_gym.engines.local.engine import LocalEngine as Engine
from training_gym.spec.errors import SpecError


def refused(**engine):
    run = RunSpec(model="m", dataset=[{"prompt": "p"}], recipe=Recipe(engine=LocalEngine(**engine)))
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
    ],
)
def test_who_may_sample(engine, paths):
    assert refused(**engine) == paths


def test_a_misspelt_sampler_is_named():
    with pytest.raises(SpecError, match="no sampler is called 'vlm'") as caught:
        LocalEngine(sampler="vlm")
    assert "vllm" in caught.value.fix
