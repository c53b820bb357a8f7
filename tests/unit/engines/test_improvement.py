"""Every algorithm makes the policy better at something, in process and within seconds."""

import asyncio

import pytest
import torch

from training_gym.data import TaskStream
from training_gym.engines.local.companions import load_companions
from training_gym.engines.local.imitation import ImitationLearner
from training_gym.engines.local.learning import PolicyLearner
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.state import Progress
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.engines.local.translation import Translation
from training_gym.environments.single_turn import SingleTurn
from training_gym.environments.turn_based import Turn, TurnBased
from training_gym.models.weights import load_codec, load_model, save_model
from training_gym.models.weights.tiny import tiny_model
from training_gym.rollouts.attempts import Limits
from training_gym.rollouts.judging import EpisodeJudge
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.rollouts.seats import SampledPlayers
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
    DrGRPO,
    FullVocabulary,
    ReinforcePlusPlus,
    SampledTokens,
    SimPO,
)
from training_gym.spec.episodes import Score
from training_gym.spec.loss_terms import MIS, TIS, IcePop, LossKL, RewardKL
from training_gym.spec.recipe import AdamW, Lora, Recipe
from training_gym.spec.tasks import Task

SCALE = 6.0
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Workbench:
    """A fresh tiny model and everything that trains it."""

    def __init__(self, folder, compute, adapter=None):
        self.folder = folder
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
        self.companions = load_companions(recipe, self.network, self.codec, start=self.folder)
        return LocalTrainer(
            self.network,
            recipe,
            token_budget=4096,
            total_steps=recipe.num_steps * recipe.updates_per_batch,
            save_weights=lambda _: None,
            companions=self.companions,
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
            SampledPlayers(self.sampler, self.codec, seed=recipe.seed),
            environment,
            seed=recipe.seed,
            limits=Limits(recipe.max_turns, 60),
            presence=self.sampler.presence,
        )
        trainer = self.trainer(recipe)
        translation = None
        if self.companions.translated is not None:
            translation = Translation(
                self.companions.reference,
                self.companions.translated,
                self.codec,
                recipe,
                token_budget=4096,
            )
        learner = PolicyLearner(
            recipe,
            recipe.algorithm,
            tasks=TaskStream(tasks, 0),
            runner=runner,
            judge=judge,
            sampler=self.sampler,
            trainer=trainer,
            compute=self.compute,
            on_episode=lambda episode: None,
            translation=translation,
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
    "gspo": {"algorithm": GSPO(clip_low=0.1, clip_high=0.1, passes=2)},
    "cispo": {"algorithm": CISPO(correction=TIS()), "optimizer_steps_per_batch": 2},
    "rloo_kl": {"algorithm": RLOO(kl=RewardKL()), "adapter": Lora(rank=8, alpha=32)},
    "reinforce++": {
        "algorithm": ReinforcePlusPlus(kl=RewardKL(), correction=IcePop()),
        "prompts_per_batch": 32,
        "group_size": 1,
    },
    "reinforce++-baseline": {"algorithm": ReinforcePlusPlus(group_baseline=True)},
    "ppo": {
        "algorithm": PPO(passes=2, gae_lambda=0.95, entropy_coefficient=1e-3, correction=MIS()),
        "prompts_per_batch": 32,
        "group_size": 1,
    },
    "kl_in_the_loss": {"algorithm": GRPO(kl=LossKL(), dual_clip=3.0)},
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
    assert drift > 1.01 if recipe.updates_per_batch > 1 else drift < 1 + 1e-4
    assert history[0]["drift_rate"] == 0.0


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


@pytest.mark.parametrize("algorithm", [DPO(), DPO(loss="ipo", length_normalized=True), SimPO()])
@pytest.mark.parametrize("adapter", [None, Lora(rank=8, alpha=32)], ids=["full", "lora"])
def test_preferences_are_learned(tiny_folder, compute, algorithm, adapter):
    tasks = [
        Task(id=w, prompt=f"{w}: ", answer="yes", rejected="no way", split_key=w)
        for w in ("say", "tell", "spell", "write")
    ]
    recipe = Recipe(
        algorithm=algorithm,
        adapter=adapter,
        num_steps=8,
        prompts_per_batch=4,
        group_size=1,
        optimizer=AdamW(learning_rate=3e-3),
    )
    history = Workbench(tiny_folder, compute, adapter).imitate(recipe, tasks)
    first, last = history[0], history[-1]
    if isinstance(algorithm, DPO) and adapter is not None:
        # The reference is the policy itself with its adapter off, and the adapter starts at zero.
        assert first["preference_margin"] == pytest.approx(0.0, abs=1e-5)
    assert last["preference_margin"] > first["preference_margin"] + 0.1
    assert last["preference_accuracy"] == 1.0
    assert last["loss"] < first["loss"]


def imitated(bench, answers):
    """The workbench's model after it has learned to give these answers to anything."""
    tasks = [
        Task(id=f"{w}{n}", prompt=f"{w}: ", answer=answer, split_key=w)
        for w in ("say", "tell")
        for n, answer in enumerate(answers)
    ]
    recipe = Recipe(
        algorithm=SFT(),
        num_steps=25,
        prompts_per_batch=len(tasks),
        group_size=1,
        optimizer=AdamW(learning_rate=1e-2),
    )
    bench.imitate(recipe, tasks)
    return bench


def teacher_of_letters(tmp_path, compute, extra_tokens=()):
    """A model that answers with the letter e, whatever it is asked."""
    folder = tiny_model(tmp_path / "teacher", "llama", seed=1, extra_tokens=extra_tokens)
    bench = imitated(Workbench(folder, compute), [8 * "e"])
    save_model(bench.network.model, folder, tmp_path / "taught")
    return tmp_path / "taught"


async def share_of_e(episodes):
    return [
        e.changed(score=Score(value=e.completion.count("e") / max(len(e.completion), 1)))
        for e in episodes
    ]


@pytest.mark.parametrize(
    ("loss", "extra_tokens"),
    [
        (SampledTokens(), ()),
        (FullVocabulary(), ()),
        (FullVocabulary(mixture=0.5), ()),
        (SampledTokens(), ("ee", "no")),
    ],
    ids=["sampled", "reverse", "between", "other_tokenizer"],
)
def test_a_student_learns_from_its_teacher(tiny_folder, tmp_path, compute, loss, extra_tokens):
    teacher = teacher_of_letters(tmp_path, compute, extra_tokens)
    recipe = Recipe(
        algorithm=Distill(teacher=str(teacher), loss=loss),
        num_steps=12,
        prompts_per_batch=2,
        group_size=8,
        max_response_tokens=6,
        optimizer=AdamW(learning_rate=1e-2),
    )
    tasks = [Task(id=w, prompt=f"{w}: ", split_key=w) for w in ("say", "tell")]
    # What the student never says cannot be praised: it begins with three letters in any order.
    bench = imitated(Workbench(tiny_folder, compute), ["eaoeoa", "aeoaeo", "oeaooe", "eeaoao"])
    history = bench.reinforce(recipe, tasks, SingleTurn(), share_of_e)
    assert (bench.companions.translated is None) == (not extra_tokens)
    # What is drawn hangs on the last bits: after twelve steps the gain is anything from 0.25 on.
    assert mean_reward(history[-2:]) > mean_reward(history[:2]) + 0.2
    assert max(metrics["mismatch_max"] for metrics in history) < 1e-4
