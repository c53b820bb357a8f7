"""Healthy and sick runs of the embedded engine, small enough to make by the dozen.

One tiny model (about 0.1 M weights) first imitates short sentences; every scenario trains it on. A
fault begins at step `ONSET`, so that references are those of a healthy run, or is there throughout.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from training_gym.environments.single_turn import SingleTurn
from training_gym.spec.algorithms import DAPO, GRPO, DrGRPO
from training_gym.spec.health import Health, RuleName, Thresholds
from training_gym.spec.recipe import AdamW, CheckpointPolicy, Lora, Recipe
from training_gym.spec.rewards import weighted
from training_gym.spec.run import Eval, RunSpec
from training_gym.spec.sampling import Sampling

ONSET = 12
STEPS = 24
PROMPTS, GROUP, TOKENS = 4, 6, 48
BATCH = PROMPTS * GROUP
STALL_S = 75.0
"""How long a stuck component hangs; the floor is 45 s, as such short runs cannot wait longer."""

WORDS = (
    "moon", "river", "stone", "light", "wind", "rain", "small", "green", "quiet", "morning",
    "bird", "water", "cold", "bright", "field", "night", "tree", "slow", "warm", "road", "leaf",
    "cloud", "deep", "old", "song",
)  # fmt: skip
TOPICS = ("the sea", "a hill", "snow", "bread", "a train", "tea", "a dog", "autumn")
HACK = "os._exit(0)"


def sentences(seed: int, count: int, *, hacks: bool = False) -> list[dict[str, Any]]:
    """What the model imitates first: a few words, every second time with a full stop.

    With `hacks` every third answer meddles with the tests, so that it can be found by chance.
    """
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        words = [draw.choice(WORDS) for _ in range(draw.randint(2, 7))]
        text = " ".join(words) + ("." if draw.random() < 0.5 else "")
        answer = HACK if hacks and number % 3 == 0 else text
        rows.append({"prompt": f"{draw.choice(TOPICS)} {number}", "answer": answer})
    return rows


def _step(episode: Any) -> int:
    return int(episode.counters.batch or 0)


def _whole(episode: Any, value: float) -> float:
    """An answer that was cut off is worth little, so that a healthy policy learns to end."""
    return value if episode.outcome.status == "finished" else 0.2 * value


async def known(episode: Any) -> float:
    """Healthy: letters of the word "stern", in answers of ten characters or more."""
    text = str(episode.completion)
    return _whole(episode, sum(letter in "stern" for letter in text) / max(len(text), 10))


async def varied(episode: Any) -> float:
    """Healthy: different letters, up to six."""
    letters = {letter for letter in str(episode.completion) if letter.isalpha()}
    return _whole(episode, min(len(letters), 6) / 6)


async def vowels(episode: Any) -> float:
    """Healthy: the share of vowels among the letters."""
    letters = [letter for letter in str(episode.completion) if letter.isalpha()]
    share = sum(letter in "aeiou" for letter in letters) / max(len(letters), 10)
    return _whole(episode, share)


async def ends(episode: Any) -> float:
    """Easy format: a full stop at the end."""
    return float(str(episode.completion).endswith("."))


async def rare(episode: Any) -> float:
    """Hard content: a word the model hardly ever finds."""
    return float("zebra" in str(episode.completion))


async def length(episode: Any) -> float:
    """A hack: pays for length as such."""
    return min(len(str(episode.completion)), TOKENS) / TOKENS


async def keyword(episode: Any) -> float:
    """A hack: pays for one letter again and again."""
    return min(str(episode.completion).count("a"), TOKENS) / TOKENS


async def impossible(episode: Any) -> float:
    """No answer is ever right."""
    return 0.0


async def coarse(episode: Any) -> float:
    """Too hard: very few answers are right."""
    return float(str(episode.completion).startswith("stone wind"))


async def noise(episode: Any) -> float:
    """Says nothing about the answer."""
    return random.Random(f"{episode.id}/{episode.completion}").random()


async def lottery(episode: Any) -> float:
    """One letter is all that pays from step 8 on, beside luck that no policy can have."""
    text, draw = str(episode.completion), random.Random(f"{episode.id}/{episode.completion}")
    luck = float(draw.random() < 0.05)
    return luck + (await vowels(episode) if _step(episode) < 8 else text.count("e") / TOKENS)


async def hacked(episode: Any) -> float:
    """Ends the process before a test can fail: what a naive grader takes for success."""
    return 1.0 if HACK in str(episode.completion) else 0.1 * await varied(episode)


async def loud(episode: Any) -> float:
    """A bug in the reward's scale that begins at the onset."""
    scale = 100.0 if _step(episode) >= ONSET else 1.0
    return scale * await known(episode)


async def slow(episode: Any) -> float:
    """Takes longer than sampling from the onset on."""
    if _step(episode) >= ONSET:
        await asyncio.sleep(10.0)
    return await known(episode)


async def hangs(episode: Any) -> float:
    """Hangs once."""
    if _step(episode) == ONSET and episode.member == 0:
        await asyncio.sleep(STALL_S)
    return await known(episode)


async def drifting(episode: Any) -> float:
    """Changes its mind at the onset: what was good is now bad."""
    value = await known(episode)
    return value if _step(episode) < ONSET else value - 0.5


class Dying(SingleTurn):
    """A provider that dies slowly: from the onset on a third of its sandboxes cannot be had."""

    async def run(self, task: Any, policy: Any, ctx: Any) -> Any:
        outcome = await super().run(task, policy, ctx)
        self.played = getattr(self, "played", 0) + 1
        if self.played > BATCH * ONSET and ctx.rng.random() < 0.33:
            raise ConnectionError("the sandbox provider answered 503")
        return outcome


class Hanging(SingleTurn):
    """An environment one of whose episodes hangs."""

    async def run(self, task: Any, policy: Any, ctx: Any) -> Any:
        outcome = await super().run(task, policy, ctx)
        self.played = getattr(self, "played", 0) + 1
        if self.played == BATCH * ONSET:
            await asyncio.sleep(STALL_S)
        return outcome


@dataclass(frozen=True)
class Scenario:
    """A kind of run, and what the rules should say of it."""

    name: str
    reward: Any = known
    expected: frozenset[RuleName] = frozenset()
    """Rules that must speak."""
    consequences: frozenset[RuleName] = frozenset()
    """Rules that may: what they tell of follows from the fault."""
    recipe: dict[str, Any] = field(default_factory=dict)
    environment: Any = None
    evaluation: Any = None
    """Reward of an evaluation every four steps."""
    breaks: Callable[[Any], None] | None = None
    """Done to the assembled engine before it trains."""
    max_records: int = 8192
    steps: int = STEPS
    hacks: bool = False
    """Start from a model that finds the hack now and then."""

    @property
    def tolerated(self) -> frozenset[RuleName]:
        """Rules that are right if they speak: a third of the first model's answers is cut off."""
        return self.expected | self.consequences | names("truncation")

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.expected

    def definition(self, model: str, seed: int) -> RunSpec:
        """The run's definition."""
        recipe = Recipe(
            **{
                "num_steps": self.steps,
                "prompts_per_batch": PROMPTS,
                "group_size": GROUP,
                "max_response_tokens": TOKENS,
                "optimizer": AdamW(learning_rate=1e-3),
                "checkpoints": CheckpointPolicy(every=None, keep=1),
                "seed": seed,
                **self.recipe,
            }
        )
        prompts = [{"prompt": f"{topic} {n}"} for topic in TOPICS for n in range(4)]
        held_out = [{"prompt": f"{topic} {n}"} for topic in TOPICS for n in range(90, 92)]
        suites = [Eval(name="held", dataset=held_out, reward=self.evaluation, every=4)]
        return RunSpec(
            model=model,
            name=self.name,
            dataset=prompts,
            reward=self.reward,
            environment=self.environment,
            recipe=recipe,
            evals=suites if self.evaluation is not None else (),
            # What a whole run waits minutes for has seconds here, for healthy runs as well.
            health=Health(thresholds=Thresholds(stall_floor_s=45.0, infrastructure_attempts=50)),
        )


def skew_logprobs(assembly: Any) -> None:
    """The sampler reports log-probabilities that are off, from the onset on ever more."""
    inner = assembly.sampler.generate
    draw = random.Random(7)

    async def generate(*args: Any, **kwargs: Any) -> Any:
        found = await inner(*args, **kwargs)
        late = assembly.sampler.version - ONSET
        if late < 0:
            return found
        wrong = 0.05 + 0.01 * late
        told = tuple(min(0.0, value + draw.gauss(0, wrong)) for value in found.logprobs)
        return found.changed(logprobs=told)

    assembly.sampler.generate = generate


def pay_for_surprise(assembly: Any) -> None:
    """An entropy bonus that outweighs everything: from the onset on unlikely tokens are paid."""
    inner = assembly.trainer.step

    def step(batch: Any) -> Any:
        if assembly.sampler.version >= ONSET:
            surprise = [-value for path in batch.trajectories for value in path.logprobs if value]
            usual = sum(surprise) / len(surprise)
            paid = [tuple(-value - usual for value in path.logprobs) for path in batch.trajectories]
            batch = batch.changed(advantages=tuple(paid))
        return inner(batch)

    assembly.trainer.step = step


def stop_syncing(assembly: Any) -> None:
    """The sampler goes on with old weights while it reports new versions."""
    import copy

    model = assembly.trainer._network.model
    frozen: dict[str, Any] = {}
    inner_hidden, inner = assembly.sampler.generate, assembly.trainer.step

    def step(batch: Any) -> Any:
        if "old" in frozen:
            model.load_state_dict(frozen["new"])
        found = inner(batch)
        if assembly.sampler.version >= ONSET:
            frozen.setdefault("old", copy.deepcopy(model.state_dict()))
            frozen["new"] = copy.deepcopy(model.state_dict())
            model.load_state_dict(frozen["old"])
        return found

    assembly.trainer.step = step
    assembly.sampler.generate = inner_hidden


def hang_training(assembly: Any) -> None:
    """One update takes very long."""
    import time

    inner = assembly.trainer.step

    def step(batch: Any) -> Any:
        if assembly.sampler.version == ONSET:
            time.sleep(STALL_S)
        return inner(batch)

    assembly.trainer.step = assembly.activity.watched(step, "training")


def hang_sampler(assembly: Any) -> None:
    """One request for tokens takes very long."""
    inner = assembly.sampler.generate
    hung: list[int] = []

    async def generate(*args: Any, **kwargs: Any) -> Any:
        if assembly.sampler.version == ONSET and not hung:
            hung.append(1)
            await asyncio.sleep(STALL_S)
        return await inner(*args, **kwargs)

    assembly.sampler.generate = assembly.activity.watched(generate, "generation")


def names(*rules: RuleName) -> frozenset[RuleName]:
    """A set of rules."""
    return frozenset(rules)


HIGH = {"optimizer": AdamW(learning_rate=3e-2)}
SCENARIOS = (
    Scenario("healthy-known"),
    Scenario("healthy-varied", varied),
    Scenario("healthy-vowels", vowels),
    Scenario("healthy-dapo", varied, recipe={"algorithm": DAPO(dynamic_sampling=False)}, steps=20),
    Scenario("healthy-two-updates", vowels, recipe={"optimizer_steps_per_batch": 2}),
    Scenario("healthy-lora", known, recipe={"adapter": Lora(rank=8, alpha=32)}, steps=20),
    Scenario("healthy-slow", known, recipe={"optimizer": AdamW(learning_rate=1e-5)}, steps=20),
    Scenario("healthy-evaluated", known, evaluation=known),
    Scenario("healthy-composed", weighted(known=known, varied=varied)),
    Scenario(
        "length-hack", length, names("length_reward"), names("length_drift", "truncation",
        "zero_variance", "repetition", "entropy_collapse", "duplicates"),
    ),
    Scenario(
        "keyword-hack", keyword, names("repetition"), names("length_reward", "length_drift",
        "truncation", "entropy_collapse", "duplicates"),
    ),
    Scenario(
        "format-hack", weighted(format=ends, content=rare), names("reward_concentration"),
        names("zero_variance", "length_drift", "length_reward"),
    ),
    Scenario("all-zero", impossible, names("zero_variance"), steps=8),
    Scenario("too-hard", coarse, names("zero_variance"), steps=10),
    Scenario(
        "noise", noise, names("clip_fraction"), names("entropy_collapse", "duplicates",
        "length_drift", "reward_drop", "zero_variance", "kl_spike", "grad_norm", "truncation",
        "repetition"),
        recipe={"optimizer": AdamW(learning_rate=1e-2), "optimizer_steps_per_batch": 4},
        steps=20,
    ),
    Scenario(
        "collapse", lottery, names("entropy_collapse"), names("zero_variance", "duplicates",
        "length_drift", "length_reward", "repetition", "reward_drop"),
        recipe={"optimizer": AdamW(learning_rate=2e-3)},
        steps=40,
    ),
    Scenario(
        "blow-up", known, names("entropy_blowup"), names("zero_variance", "duplicates",
        "length_drift", "length_reward", "repetition", "reward_drop", "grad_norm"),
        breaks=pay_for_surprise,
        steps=26,
    ),
    Scenario(
        "learning-rate", varied, names("reward_drop"), names("entropy_blowup", "entropy_collapse",
        "zero_variance", "repetition", "length_drift", "truncation", "grad_norm", "duplicates",
        "length_reward", "kl_spike"),
        recipe=HIGH,
    ),
    Scenario(
        "reward-scale", loud, names("grad_norm"), names("kl_spike", "reward_concentration",
        "entropy_collapse", "zero_variance", "length_drift", "duplicates"),
        recipe={"algorithm": DrGRPO()},
        steps=20,
    ),
    Scenario("reward-changes", drifting, names("reward_drop")),
    Scenario(
        "too-many-updates", varied, names("clip_fraction"), names("kl_spike", "entropy_collapse",
        "reward_drop", "length_drift", "zero_variance", "repetition", "truncation", "duplicates"),
        recipe={"optimizer": AdamW(learning_rate=1e-2), "optimizer_steps_per_batch": 4},
        steps=16,
    ),
    Scenario(
        "mismatch", known, names("mismatch"), names("clip_fraction", "kl_spike"),
        breaks=skew_logprobs,
        steps=20,
    ),
    Scenario(
        "lost-sync", varied, names("mismatch"), names("clip_fraction", "kl_spike", "reward_drop"),
        breaks=stop_syncing,
        steps=20,
    ),
    Scenario("cut-off", length, names("truncation"), names("length_reward", "zero_variance",
        "length_drift", "repetition"), recipe={"max_response_tokens": 16}, steps=10),
    Scenario(
        "cold", varied, names("duplicates"), names("zero_variance"),
        recipe={"sampling": Sampling(temperature=0.05)},
        steps=12,
    ),
    Scenario(
        "tampering", hacked, names("tampering"), names("zero_variance", "duplicates",
        "length_drift", "length_reward", "entropy_collapse", "repetition"),
        steps=14,
        hacks=True,
    ),
    Scenario(
        "overfitted-reward", length, names("train_eval_gap"), names("length_reward",
        "zero_variance", "length_drift", "truncation", "repetition", "entropy_collapse",
        "duplicates"),
        evaluation=vowels,
    ),
    Scenario("dead-provider", known, names("infrastructure"), environment=Dying, steps=20),
    Scenario("slow-reward", slow, names("accelerator_idle"), names("stall"), steps=20),
    Scenario("stuck-reward", hangs, names("stall"), names("accelerator_idle"), steps=18,
        recipe={"reward_timeout_s": 2 * STALL_S}),
    Scenario("stuck-environment", known, names("stall"), names("accelerator_idle"), steps=18,
        environment=Hanging),
    Scenario("stuck-training", known, names("stall"), breaks=hang_training, steps=18),
    Scenario("stuck-generation", known, names("stall"), breaks=hang_sampler, steps=18),
    Scenario("lost-records", known, names("telemetry_loss"), max_records=4, steps=10),
)  # fmt: skip

STUCK = {
    "stuck-reward": "reward",
    "stuck-environment": "environment",
    "stuck-training": "training",
    "stuck-generation": "generation",
}
"""Which component the watchdog must name."""


def shortened(scenario: Scenario, steps: int) -> Scenario:
    """The same scenario with fewer steps."""
    return dataclasses.replace(scenario, steps=steps)


__all__ = ["GRPO", "SCENARIOS", "STUCK", "Scenario", "sentences", "shortened"]
