"""One token batch, and what this package makes of it: loss and gradient of any algorithm."""

import os
from dataclasses import dataclass

import pytest
import torch

from training_gym.engines.local.companions import Companions, score_trajectories
from training_gym.engines.local.credit import Group, credit, training_batch, with_advantages
from training_gym.engines.local.network import Network
from training_gym.engines.local.packing import micro_batches
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.models.weights import load_model, save_model
from training_gym.models.weights.tiny import tiny_model
from training_gym.spec.algorithms import Distill
from training_gym.spec.episodes import PROMPT, SAMPLED, Episode, Score, Trajectory
from training_gym.spec.recipe import Recipe
from training_gym.spec.sampling import Sampling
from training_gym.spec.tasks import Task

MAX_TOKENS = 12
TEMPERATURE = 0.9
GROUPS = ((9, (5, 3, 12, 7)), (4, (8, 2, 6, 11)))
"""Length of each prompt and of each answer to it."""


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A tiny model whose distributions are far from uniform."""
    folder = tiny_model(tmp_path_factory.mktemp("parity") / "llama", "llama")
    model = load_model(folder, dtype="float32", device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4.0)
    model.save_pretrained(folder)
    return folder


def moved(model, seed=5):
    """The model a few updates later: every weight a little different."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))


@dataclass(frozen=True)
class Tokens:
    """Prompts, answers, rewards, and how far sampler and trainer were apart on each token."""

    prompts: list
    answers: list
    rewards: list
    noise: list


@pytest.fixture(scope="session")
def tokens():
    generator = torch.Generator().manual_seed(11)

    def some(length):
        return torch.randint(32, 127, (length,), generator=generator).tolist()

    prompts = [some(length) for length, _ in GROUPS]
    answers = [[some(length) for length in lengths] for _, lengths in GROUPS]
    rewards = [[1.0, 0.0, 2.5, 0.5], [0.0, -1.0, 3.0, 0.25]]
    noise = [
        [((torch.rand(n, generator=generator) - 0.5) * 1.6).tolist() for n in lengths]
        for _, lengths in GROUPS
    ]
    return Tokens(prompts, answers, rewards, noise)


@dataclass(frozen=True)
class Result:
    """A loss and the gradient of every weight, by name."""

    loss: float
    gradients: dict

    def against(self, other):
        """Relative distance of losses, and of gradients as one vector."""
        names = sorted(other.gradients)
        ours, theirs = (
            torch.cat([side.gradients[name].double().flatten() for name in names])
            for side in (self, other)
        )
        assert set(self.gradients) == set(names)
        return (
            abs(self.loss - other.loss) / abs(other.loss),
            ((ours - theirs).norm() / theirs.norm()).item(),
        )

    @property
    def projections(self):
        """The gradient's length and its components along four fixed random directions."""
        whole = torch.cat([self.gradients[n].double().flatten() for n in sorted(self.gradients)])
        generator = torch.Generator().manual_seed(1)
        found = [whole.norm().item()]
        for _ in range(4):
            direction = torch.randn(whole.shape, generator=generator, dtype=torch.float64)
            found.append((whole @ direction).item())
        return found


def trajectory(prompt, answer, logprobs=None):
    length = len(prompt) + len(answer)
    return Trajectory(
        token_ids=(*prompt, *answer),
        flags=(PROMPT,) * len(prompt) + (SAMPLED,) * len(answer),
        logprobs=tuple(logprobs or (0.0,) * length),
        versions=(0,) * length,
        prompt_length=len(prompt),
    )


class Ours:
    """A policy with everything beside it, before and after its weights moved."""

    def __init__(self, folder, algorithm, *, temperature=TEMPERATURE, teacher=None):
        self.network = self._load(folder)
        self.recipe = Recipe(
            algorithm=algorithm,
            max_response_tokens=MAX_TOKENS,
            optimizer_steps_per_batch=2,
            sampling=Sampling(temperature=temperature),
        )
        self.trainer = LocalTrainer(
            self.network,
            self.recipe,
            token_budget=64,
            total_steps=1,
            save_weights=lambda _: None,
            companions=Companions(reference=self._load(teacher or folder)),
        )

    @staticmethod
    def _load(folder):
        network = Network(load_model(folder, dtype="float32", device="cpu"))
        network.model.eval()
        return network

    def logprobs(self, trajectories):
        return score_trajectories(
            self.network,
            trajectories,
            temperature=self.recipe.sampling.temperature,
            token_budget=64,
            chunk=16,
        )

    def differentiate(self, batch):
        trainer = self.trainer
        rows, together = trainer._rows(batch), trainer._objective.together
        device = self.network.device
        parts = [
            trainer._accumulate(micro)[0]
            for micro in micro_batches(rows, 64, device, together=together)
        ]
        found = {name: p.grad.clone() for name, p in self.network.trainable()}
        return Result(sum(parts), found)


@pytest.fixture
def ours(model_folder, tokens):
    """`ours(algorithm, mismatch)`: the loss on the batch, after the weights moved."""

    def go(algorithm, *, mismatch=False, teacher=None):
        side = Ours(model_folder, algorithm, teacher=teacher)
        groups = []
        for prompt, answers, rewards, noise in zip(
            tokens.prompts, tokens.answers, tokens.rewards, tokens.noise, strict=True
        ):
            played = [trajectory(prompt, answer) for answer in answers]
            sampled = side.logprobs(played)
            if mismatch:
                sampled = [
                    [
                        *row[: len(prompt)],
                        *(p + n for p, n in zip(row[len(prompt) :], off, strict=True)),
                    ]
                    for row, off in zip(sampled, noise, strict=True)
                ]
            episodes = [
                Episode(
                    id=str(n),
                    task=Task(id="t", prompt="", split_key="t"),
                    group="g",
                    trajectories=(trajectory(prompt, answer, logprobs),),
                    score=Score(value=reward),
                )
                for n, (answer, logprobs, reward) in enumerate(
                    zip(answers, sampled, rewards, strict=True)
                )
            ]
            groups.append(Group(episodes, rewards))
        rows = [t for group in groups for _, _, t in group.rows]
        columns = side.trainer.annotate(rows) if side.trainer.columns else {}
        if isinstance(algorithm, Distill):
            nothing = [(0.0,) * len(row.token_ids) for row in rows]
            credited = with_advantages(groups, nothing, columns)
        else:
            credited = credit(groups, algorithm, columns)
        moved(side.network.model)
        return side.differentiate(training_batch([row for group in credited for row in group]))

    return go


@pytest.fixture
def ours_on_answers(model_folder):
    """`ours_on_answers(algorithm, batch)`: the loss of given answers, after the weights moved."""

    def go(algorithm, make_batch):
        side = Ours(model_folder, algorithm, temperature=1.0)
        batch = make_batch(side.trainer)
        moved(side.network.model)
        return side.differentiate(batch)

    return go


@pytest.fixture
def differentiated():
    """`differentiated(loss, model)`: backward, and what it left in the model's weights."""

    def go(loss, model):
        loss.backward()
        found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        return Result(loss.item(), found)

    return go


@pytest.fixture
def move():
    """`move(model)`: the model a few updates later."""
    return moved


@pytest.fixture
def policy(model_folder):
    """`policy(...)`: everything of ours around the model."""
    return lambda algorithm, **settings: Ours(model_folder, algorithm, **settings)


@pytest.fixture
def rows_of_tokens(tokens):
    """Every prompt with each of its answers, as a trajectory."""
    pairs = zip(tokens.prompts, tokens.answers, strict=True)
    return [trajectory(prompt, answer) for prompt, answers in pairs for answer in answers]


@pytest.fixture
def teacher(model_folder, tmp_path):
    """Another model of the same family."""
    model = load_model(model_folder, dtype="float32", device="cpu")
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    save_model(model, model_folder, tmp_path / "teacher")
    return tmp_path / "teacher"


@pytest.fixture
def ours_as_in(ours, teacher):
    """Our loss on the batch that TRL's settings describe."""

    def go(algorithm, settings):
        reference = teacher if "reference" in settings else None
        return ours(algorithm, mismatch="use_vllm" in settings, teacher=reference)

    return go
