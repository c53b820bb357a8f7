"""Whatever an algorithm couples: how a batch is cut into micro-batches and chunks is no matter."""

import pytest
import torch

from training_gym.engines.local.companions import Companions
from training_gym.engines.local.credit import Group, credit, training_batch
from training_gym.engines.local.measures import over_updates
from training_gym.engines.local.network import Network
from training_gym.engines.local.objectives import columns_before_training
from training_gym.engines.local.packing import Row, micro_batches
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.models.weights import load_model
from training_gym.spec.algorithms import (
    CISPO,
    DAPO,
    DPO,
    GRPO,
    GSPO,
    PPO,
    RLOO,
    SFT,
    Distill,
    FullVocabulary,
    SimPO,
)
from training_gym.spec.engine import TrainingBatch
from training_gym.spec.episodes import PROMPT, SAMPLED, Episode, Score, Trajectory
from training_gym.spec.loss_terms import MIS, TIS, IcePop, LossKL, RewardKL
from training_gym.spec.recipe import LocalEngine, Recipe
from training_gym.spec.tasks import Task

POLICIES = {
    "gspo": GSPO(clip_low=0.1, clip_high=0.1),
    "rloo": RLOO(entropy_coefficient=0.01),
    "mis": GRPO(correction=MIS(cap=1.5)),
    "mis_gspo": GSPO(clip_low=0.1, clip_high=0.1, correction=MIS(cap=1.5)),
    "tis": DAPO(correction=TIS(cap=1.1)),
    "kl": GRPO(kl=LossKL(coefficient=0.1), dual_clip=2.0),
    "cispo": CISPO(kl=RewardKL(coefficient=0.1), correction=IcePop()),
    "ppo": PPO(gae_lambda=0.9),
}


def rows(seed=0, lengths=((6, 9, 20, 5), (3, 14, 7))):
    generator = torch.Generator().manual_seed(seed)
    for prompt_length, *answers in lengths:
        prompt = torch.randint(32, 127, (prompt_length,), generator=generator).tolist()
        yield [
            Trajectory(
                token_ids=(
                    *prompt,
                    *torch.randint(32, 127, (length,), generator=generator).tolist(),
                ),
                flags=(PROMPT,) * prompt_length + (SAMPLED,) * length,
                logprobs=(0.0,) * prompt_length
                + tuple((-5 - torch.rand(length, generator=generator)).tolist()),
                versions=(0,) * (prompt_length + length),
                prompt_length=prompt_length,
            )
            for length in answers
        ]


def groups():
    task = Task(id="t", prompt="", split_key="t")
    return [
        Group(
            [
                Episode(
                    id="e", task=task, group="g", trajectories=(row,), score=Score(value=float(n))
                )
                for n, row in enumerate(group)
            ],
            [float(n) for n in range(len(group))],
        )
        for group in rows()
    ]


def gradient(folder, algorithm, make_batch, *, token_budget, chunk):
    network = Network(load_model(folder, dtype="float32", device="cpu"))
    recipe = Recipe(algorithm=algorithm, engine=LocalEngine(logprob_chunk_tokens=chunk))
    reference = Network(load_model(folder, dtype="float32", device="cpu"))
    with torch.no_grad():
        for parameter in reference.model.parameters():
            parameter.mul_(1.1)
    trainer = LocalTrainer(
        network,
        recipe,
        token_budget=token_budget,
        total_steps=1,
        save_weights=lambda _: None,
        companions=Companions(reference),
    )
    batch = make_batch(trainer)
    micros = micro_batches(
        trainer._rows(batch),
        token_budget,
        network.device,
        together=trainer._objective.together,
    )
    loss = sum(trainer._accumulate(micro)[0] for micro in micros)
    found = [p.grad.flatten() for _, p in network.trainable()]
    if trainer.value_head is not None:
        found += [p.grad.flatten() for p in trainer.value_head.parameters()]
    return loss, torch.cat(found)


def cut_does_not_matter(folder, algorithm, make_batch):
    whole, expected = gradient(folder, algorithm, make_batch, token_budget=4096, chunk=4096)
    for token_budget, chunk in ((4096, 16), (30, 16)):
        loss, found = gradient(
            folder, algorithm, make_batch, token_budget=token_budget, chunk=chunk
        )
        assert loss == pytest.approx(whole, rel=1e-4, abs=1e-6)
        assert (found - expected).norm() < 1e-4 * expected.norm()


@pytest.mark.parametrize("algorithm", POLICIES.values(), ids=POLICIES.keys())
def test_policies(tiny_folder, algorithm):
    def batch(trainer):
        given = groups()
        needed = [t for group in given for _, _, t in group.rows]
        columns = trainer.annotate(needed) if trainer.columns else {}
        return training_batch([r for part in credit(given, algorithm, columns) for r in part])

    cut_does_not_matter(tiny_folder, algorithm, batch)


def answers(trainer):
    given = tuple(row for group in rows(lengths=((6, 9, 20), (3, 14, 7))) for row in group)
    return TrainingBatch(
        trajectories=given,
        advantages=tuple((0.0,) * len(row.token_ids) for row in given),
        weights=(1 / trainer._objective.together,) * len(given),
        columns=trainer.annotate(given) if trainer.columns else {},
    )


@pytest.mark.parametrize(
    "algorithm",
    [SFT(), DPO(), SimPO(), Distill(teacher="x", loss=FullVocabulary(mixture=0.5))],
    ids=["sft", "dpo", "simpo", "distill"],
)
def test_given_answers_and_teachers(tiny_folder, algorithm):
    cut_does_not_matter(tiny_folder, algorithm, answers)


@pytest.mark.parametrize("token_budget", [8, 30, 60, 500])
def test_pairs_are_never_parted(token_budget):
    given = [
        row for seed in range(3) for group in rows(seed, ((6, 9, 20), (3, 4, 7))) for row in group
    ]
    packed = [Row(t, (0.0,) * len(t.token_ids), (0.0,) * len(t.token_ids)) for t in given]
    seen = []
    for micro in micro_batches(packed, token_budget, torch.device("cpu"), together=2):
        numbers = sorted(set(micro.rows.tolist()))
        seen += numbers
        assert all(number % 2 == 1 or number + 1 in numbers for number in numbers)
        assert micro.num_tokens <= token_budget or len(numbers) == 2
    assert sorted(seen) == list(range(len(given)))


@pytest.mark.parametrize(
    ("algorithm", "settings", "columns"),
    [
        (GRPO(), {"optimizer_steps_per_batch": 4}, ()),
        (GRPO(correction=TIS()), {}, ()),
        (GRPO(correction=TIS()), {"optimizer_steps_per_batch": 2}, ("old_logprobs",)),
        (GRPO(correction=TIS(), passes=2), {}, ("old_logprobs",)),
        (GRPO(correction=MIS()), {}, ("old_logprobs",)),
        (PPO(kl=RewardKL()), {}, ("reference_logprobs", "values")),
        (DPO(), {}, ("reference_logprobs",)),
        (SimPO(), {}, ()),
        (Distill(teacher="x"), {}, ("reference_logprobs",)),
        (Distill(teacher="x", loss=FullVocabulary()), {}, ()),
    ],
)
def test_only_what_is_needed_is_computed_beforehand(algorithm, settings, columns):
    assert columns_before_training(Recipe(algorithm=algorithm, **settings)) == columns


def test_updates_of_a_batch():
    assert Recipe(algorithm=PPO(passes=3), optimizer_steps_per_batch=2).updates_per_batch == 6
    assert Recipe(algorithm=DPO(), optimizer_steps_per_batch=2).updates_per_batch == 1


def test_metrics_of_several_updates_become_one():
    first = {"mismatch_max": 1e-6, "ratio_max": 1.0, "loss": 1.0, "train_tokens": 10.0,
             "learning_rate": 2.0, "skipped": 0.0}  # fmt: skip
    second = {"mismatch_max": 0.5, "ratio_max": 1.5, "loss": 3.0, "train_tokens": 20.0,
              "learning_rate": 1.0, "skipped": 1.0}  # fmt: skip
    assert over_updates([first, second]) == {
        "mismatch_max": 1e-6, "ratio_max": 1.5, "loss": 2.0, "train_tokens": 30.0,
        "learning_rate": 1.0, "skipped": 1.0,
    }  # fmt: skip
    assert over_updates([]) == {}
