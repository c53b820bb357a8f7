"""Every kind of algorithm as a real job: launched, checked, planned, trained, resumed."""

import json

import pytest

from training_gym.records.checkpoints import list_checkpoints
from training_gym.records.readers import read_stream

pytestmark = pytest.mark.slow

RECIPES = {
    "gspo": '{"kind": "gspo", "passes": 2}',
    "cispo": '{"kind": "cispo", "correction": {"kind": "tis"}}',
    "rloo": '{"kind": "rloo", "kl": {"kind": "reward"}}',
    "reinforce++": '{"kind": "reinforce_plus_plus", "correction": {"kind": "icepop"}}',
    "ppo": '{"kind": "ppo", "passes": 2, "correction": {"kind": "mis"}}',
    "kl": '{"kind": "grpo", "kl": {"kind": "loss", "coefficient": 0.01}}',
    "distill": '{"kind": "distill", "teacher": "MODEL"}',
    "distill_full": '{"kind": "distill", "teacher": "MODEL", "loss": {"kind": "full_vocabulary"}}',
}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("adapter", ["", '{"rank": 4}'], ids=["full", "adapter"])
def test_it_trains(define, play, tiny, name, adapter):
    algorithm = json.loads(RECIPES[name].replace("MODEL", str(tiny)))
    sets = [f"recipe.algorithm={json.dumps(algorithm)}"]
    sets += [f"recipe.adapter={adapter}"] if adapter else []
    played = play(define(), *sets)
    assert played.code == 0, played.error
    assert played.summary["optimizer_steps"] >= 2
    metrics = [record["values"] for record in read_stream(played.run, "metrics")]
    assert all(values["mismatch_max"] < 1e-4 for values in metrics if "mismatch_max" in values)
    assert all("drift_rate" in values for values in metrics)


PAIRS = """
from training_gym import DPO, Recipe, SimPO, TrainConfig

config = TrainConfig(
    model={model!r},
    dataset=[{{"prompt": f"Say {{n}}.", "chosen": "yes", "rejected": "no"}} for n in range(8)],
    recipe=Recipe(
        algorithm={algorithm}, num_steps=2, prompts_per_batch=4, engine={{"threads": 1}}
    ),
)
"""


@pytest.mark.parametrize("algorithm", ["DPO()", "SimPO()"])
def test_preferences_are_learned_from_rows_in_memory(play, tiny, tmp_path, algorithm):
    file = tmp_path / f"pairs_{algorithm[:3].lower()}.py"
    file.write_text(PAIRS.format(model=str(tiny), algorithm=algorithm))
    played = play(file)
    assert played.code == 0, played.error
    metrics = [record["values"] for record in read_stream(played.run, "metrics")]
    assert all("preference_margin" in values for values in metrics)


def test_ppo_goes_on_bit_for_bit_after_a_resume(define, play, engine, trained, tmp_path):
    from tests.end_to_end.test_breaking_resume import cut_back

    sets = ("num_steps=4", "checkpoints.every=1", "checkpoints.keep=9")
    played = play(
        define(),
        'recipe.algorithm={"kind": "ppo", "passes": 2}',
        *(f"recipe.{given}" for given in sets),
    )
    assert played.code == 0, played.error
    expected = trained(played.run)
    for number in range(1, len(list_checkpoints(played.run))):
        run = cut_back(played.run, tmp_path / str(number), number)
        assert engine(run, 2).code == 0
        found = trained(run)
        assert found.metrics == expected.metrics, number
        assert (found.weights, found.optimizer) == (expected.weights, expected.optimizer), number
