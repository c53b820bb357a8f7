"""Every algorithm makes the policy better at something, in process and within seconds."""

import asyncio

import pytest
import torch

from training_gym.data import TaskStream
from training_gym.engines.local.imitation import ImitationLearner
from training_gym.engines.local.learning import PolicyLearner
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.state import Progress
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.environments.single_turn import SingleTurn
from training_gym.environments.turn_based import Turn, TurnBased
from training_gym.models.weights import load_codec, load_model
from training_gym.rollouts.judging import EpisodeJudge
from training_gym.rollouts.runner import EpisodeRunner, Limits
from training_gym.spec.algorithms import DAPO, GRPO, SFT, DrGRPO
from training_gym.spec.episodes import Score
from training_gym.spec.recipe import AdamW, Lora, Recipe
from training_gym.spec.tasks import Task

SCALE = 6.0
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Workbench:
    """A fresh tiny model and everything that trains it."""

    def __init__(self, folder, compute, adapter=None):
        self.codec = load_codec(folder)
        self.network = Network(load_model(folder, dtype="float32", device="cpu", adapter=adapter))
        self.network.model.eval()
        self.compute = compute
        # Random weights give nearly uniform logits, which an adapter alone could not sharpen.
        with torch.no_grad():
            for name, parameter in self.network.model.named_parameters():
                if parameter.ndim == 2 and "lora_" not in name:
                    parameter.mul_(SCALE)
        self.sampler = LocalSampler(
            self.network, self.codec, compute, slots=64, max_sequence_tokens=160
        )

    def trainer(self, recipe):
        steps = recipe.num_steps * recipe.optimizer_steps_per_batch
        return LocalTrainer(
            self.network, recipe, token_budget=4096, total_steps=steps, save_weights=lambda _: None
        )

    def imitate(self, recipe, tasks):
        learner = ImitationLearner(
            recipe,
            tasks=TaskStream(tasks, 0),
            codec=self.codec,
            sampler=self.sampler,
            trainer=self.trainer(recipe),
            compute=self.compute,
            max_sequence_tokens=160,
        )
        return learn(learner, recipe.num_steps)

    def reinforce(self, recipe, tasks, environment, judge):
        runner = EpisodeRunner(
            self.sampler,
            self.codec,
            environment,
            seed=recipe.seed,
            limits=Limits(recipe.max_turns, 60),
            presence=self.sampler.presence,
        )
        learner = PolicyLearner(
            recipe,
            recipe.algorithm,
            tasks=TaskStream(tasks, 0),
            runner=runner,
            judge=judge,
            sampler=self.sampler,
            trainer=self.trainer(recipe),
            compute=self.compute,
            on_episode=lambda episode: None,
        )
        return learn(learner, recipe.num_steps)


def learn(learner, num_steps):
    """The metrics of every batch."""

    async def go():
        progress, history = Progress(), []
        for _ in range(num_steps):
            progress, metrics = await learner.learn(progress)
            history.append(metrics)
        return history

    return asyncio.run(go())


async def share_of_letters(episodes):
    """Reward: the share of small letters among what was said."""
    scores = [
        sum(character in LETTERS for character in episode.completion)
        / max(len(episode.completion), 1)
        for episode in episodes
    ]
    return [
        episode.changed(score=Score(value=value))
        for episode, value in zip(episodes, scores, strict=True)
    ]


def mean_reward(history):
    return sum(metrics["reward_mean"] for metrics in history) / len(history)


RUNS = {
    "grpo": {"algorithm": GRPO()},
    "dr_grpo": {"algorithm": DrGRPO()},
    "dapo": {"algorithm": DAPO(overlong_buffer_tokens=2, overlong_penalty=0.1)},
    "two_updates": {"algorithm": GRPO(), "optimizer_steps_per_batch": 2},
    "lora": {"adapter": Lora(rank=8, alpha=32)},
    "warm": {"algorithm": GRPO(), "sampling": {"temperature": 1.3}},
}


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS.keys())
def test_the_reward_rises(tiny_folder, compute, settings):
    recipe = Recipe(
        **{
            "num_steps": 12,
            "prompts_per_batch": 4,
            "group_size": 8,
            "max_response_tokens": 8,
            "optimizer": AdamW(learning_rate=1e-2),
            **settings,
        }
    )
    tasks = [Task(id=w, prompt=f"{w}: ", split_key=w) for w in ("say", "tell", "spell", "write")]
    bench = Workbench(tiny_folder, compute, recipe.adapter)
    history = bench.reinforce(recipe, tasks, SingleTurn(), share_of_letters)
    assert mean_reward(history[:2]) < 0.25
    assert mean_reward(history[-2:]) > mean_reward(history[:2]) + 0.3
    updated = [metrics for metrics in history if "mismatch_max" in metrics]
    # Before its first update each batch is seen by the weights that sampled it.
    assert max(metrics["mismatch_max"] for metrics in updated) < 1e-4
    drift = max(metrics["ratio_max"] for metrics in updated)
    assert drift > 1.01 if recipe.optimizer_steps_per_batch > 1 else drift < 1 + 1e-4


class Guessing(TurnBased):
    """Find a digit: a miss costs a little, the more the further off; finding it ends the game."""

    max_turns = 3

    def reset(self, task, ctx):
        return task.answer, "?"

    def step(self, state, text, ctx):
        if not (len(text) == 1 and text in "0123456789"):
            return Turn("!", reward=-0.5, done=True)
        guess = int(text)
        if guess == state:
            return Turn(reward=1.0, done=True)
        return Turn("+" if guess < state else "-", reward=-abs(guess - state) / 20)


def test_a_game_of_several_turns_is_learned(tiny_folder, compute):
    """Imitating random guesses comes first; what guesses are worth is learned by playing."""
    bench = Workbench(tiny_folder, compute)
    digits = [
        Task(id=f"{n}{m}", prompt=[{"role": "user", "content": m}], answer=str(n), split_key=str(n))
        for n in range(10)
        for m in "?+-"
    ]
    imitation = Recipe(
        algorithm=SFT(),
        num_steps=40,
        prompts_per_batch=16,
        group_size=1,
        optimizer=AdamW(learning_rate=5e-3),
    )
    bench.imitate(imitation, digits)
    recipe = Recipe(
        num_steps=16,
        prompts_per_batch=3,
        group_size=8,
        max_response_tokens=3,
        optimizer=AdamW(learning_rate=3e-3),
    )
    games = [Task(id=str(n), prompt="", answer=n, split_key=str(n)) for n in (4, 5, 6)]
    judge = EpisodeJudge(None, print)
    history = bench.reinforce(recipe, games, Guessing(), judge)
    assert mean_reward(history[-4:]) > mean_reward(history[:2]) + 0.3
    assert history[0]["turns_mean"] > 2


def test_an_adapter_leaves_the_model_beneath_as_it_was(tiny_folder, compute):
    bench = Workbench(tiny_folder, compute, Lora(rank=4, alpha=8))
    recipe = Recipe(
        num_steps=1,
        prompts_per_batch=2,
        group_size=4,
        max_response_tokens=6,
        adapter=Lora(rank=4, alpha=8),
        optimizer=AdamW(learning_rate=1e-2),
    )
    tasks = [Task(id=w, prompt=w, split_key=w) for w in ("a", "b")]
    bench.reinforce(recipe, tasks, SingleTurn(), share_of_letters)
    untouched = load_model(tiny_folder, dtype="float32", device="cpu").state_dict()
    trained = {
        name.replace(".base_layer", "").removeprefix("base_model.model."): value
        for name, value in bench.network.model.state_dict().items()
        if "lora_" not in name
    }
    assert trained.keys() == untouched.keys()
    assert all(
        torch.equal(value, untouched[name] * (SCALE if value.ndim == 2 else 1))
        for name, value in trained.items()
    )
