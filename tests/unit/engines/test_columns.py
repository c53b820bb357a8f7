import copy
import math

import pytest
import torch

from training_gym.algorithms import divergences
from training_gym.engines.local.columns import record_columns, weight_entropies
from training_gym.engines.local.credit import Credited, Group, training_batch
from training_gym.engines.local.network import Network
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.spec.algorithms import GRPO, GSPO
from training_gym.spec.episodes import PROMPT, SAMPLED, TOOL, Counters, Episode, Trajectory
from training_gym.spec.recipe import Recipe
from training_gym.spec.tasks import Task


def path(number):
    """Prompt, two sampled tokens, a tool's, two sampled ones."""
    ids = (40, 41, 42, 50 + number, 51, 60, 52, 53 + number)
    flags = (PROMPT,) * 3 + (SAMPLED,) * 2 + (TOOL,) + (SAMPLED,) * 2
    drawn = tuple(-1.5 if flag == SAMPLED else 0.0 for flag in flags)
    return Trajectory(
        token_ids=ids, flags=flags, logprobs=drawn, versions=(0,) * 8, prompt_length=3
    )


def episode(number, paths):
    task = Task(id="t", prompt="p", split_key="t")
    return Episode(
        id=f"e{number}", task=task, group="g", trajectories=paths, counters=Counters(batch=number)
    )


def trainer(network, algorithm, keeps):
    made = LocalTrainer(
        Network(copy.deepcopy(network.model)),
        Recipe(algorithm=algorithm),
        token_budget=24,
        total_steps=2,
        save_weights=lambda _: None,
    )
    made.keeps_entropies = keeps
    return made


def test_entropy_of_weights_is_that_of_their_distribution():
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(0)) * 40
    weights = torch.exp(logits - logits.amax(dim=1, keepdim=True))
    assert (weights == 0).any()
    expected = divergences.entropies(logits.double()).float()
    assert torch.allclose(weight_entropies(weights), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "algorithm",
    [GRPO(), GSPO(), GRPO(entropy_coefficient=0.1)],
    ids=["by token", "by sequence", "with an entropy bonus"],
)
def test_looking_changes_nothing(network, algorithm):
    paths = [path(number) for number in range(4)]
    rows = [Credited(p, 1.0, [float(n) - 1.5] * 8) for n, p in enumerate(paths)]
    batch = training_batch(rows)
    looking, blind = trainer(network, algorithm, True), trainer(network, algorithm, False)
    metrics, expected = looking.step(batch), blind.step(batch)
    del metrics["train_seconds"], expected["train_seconds"]
    assert metrics == expected
    pairs = zip(looking._network.model.parameters(), blind._network.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert blind.latest.entropies is None
    assert len(looking.latest.entropies) == len(looking.latest.logprobs) == 16
    assert ((looking.latest.entropies > 0) & (looking.latest.entropies <= math.log(384))).all()


class Kept:
    def __init__(self):
        self.found = {}

    def token_columns(self, episode, columns, *, trajectory=0, start=0, counters=None):
        self.found[episode, trajectory] = (start, counters.batch, columns)


def test_values_come_to_the_tokens_they_belong_to(network):
    episodes = [episode(0, (path(0), path(1))), episode(1, (path(2),))]
    rows = [
        Credited(p, 1.0, [10.0 * e + n] * 8)
        for e, one in enumerate(episodes)
        for n, p in enumerate(one.trajectories)
    ]
    made, kept = trainer(network, GRPO(), True), Kept()
    made.step(training_batch(rows))
    record_columns(kept, [Group(episodes, [0.0, 1.0])], rows, made.latest)
    assert set(kept.found) == {("e0", 0), ("e0", 1), ("e1", 0)}
    for (name, number), (start, batch, columns) in kept.found.items():
        assert (start, batch) == (3, int(name[1]))
        expected = 10.0 * int(name[1]) + number
        assert columns["advantage"][:2] == [expected] * 2
        assert [value != value for value in columns["entropy"]] == [
            False,
            False,
            True,
            False,
            False,
        ]
    # As the trainer scores the whole sequence by itself.
    (scores,) = trainer(network, GRPO(), False).score([path(2).token_ids])
    mismatch = kept.found["e1", 0][2]["mismatch"]
    assert mismatch[0] == pytest.approx(scores[3] + 1.5, abs=1e-4)
    assert mismatch[4] == pytest.approx(scores[7] + 1.5, abs=1e-4)
