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


PAIRS = '[{"prompt": f"Say {n}.", "chosen": "yes", "rejected": "no"} for n in range(8)]'


@pytest.mark.parametrize("algorithm", ["dpo", "simpo"])
def test_preferences_are_learned_from_rows_in_memory(define, play, algorithm):
    file = define(dataset=PAIRS)
    text = file.read_text().replace("    reward=reward,\n", "")
    file.write_text(text.replace("recipe=Recipe(", "recipe=Recipe(algorithm=ALGORITHM,")
                    .replace("group_size=4,", "").replace("max_response_tokens=4,", "")
                    .replace("import math", "import math\nfrom training_gym import DPO, SimPO\n"
                             f"ALGORITHM = {'DPO()' if algorithm == 'dpo' else 'SimPO()'}"))  # fmt: skip
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
