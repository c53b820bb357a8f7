"""Episodes: what was attempted, the exact tokens of it, how it ended, what it was worth."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, JsonValue

from training_gym.spec.messages import Message
from training_gym.spec.settings import Settings
from training_gym.spec.tasks import Task

SAMPLED = 1
"""The policy drew this token: it is trained on."""
PROMPT = 2
"""Rendered from system and user messages and the template."""
TOOL = 4
"""Rendered from a tool's result."""
STOP = 8
"""The sampled token that ended a turn."""
FORCED = 16
"""The sampled token was the only one that the answer's form allowed: it is not trained on."""


def chosen(flag: int) -> bool:
    """Whether a token was sampled where there was more than one to choose from."""
    return flag & (SAMPLED | FORCED) == SAMPLED


class Trajectory(Settings):
    """The token-exact record of one agent's path through an episode.

    All per-token sequences have the same length T.
    """

    agent: str = "policy"
    token_ids: tuple[int, ...]
    flags: tuple[int, ...]
    """Who produced each token: a sum of `SAMPLED`, `PROMPT`, `TOOL`, `STOP`, `FORCED`."""
    logprobs: tuple[float, ...]
    """Log-probability at sampling time; 0.0 where a token was not sampled."""
    versions: tuple[int, ...]
    """Policy version that drew each token; -1 where a token was not sampled."""
    prompt_length: int
    """Tokens before the first sampled one; equal within a group whose prompt is shared."""
    trained: tuple[bool, ...] | None = None
    """Loss mask; None: exactly the tokens that were `chosen`. A token sampled before a fork is
    context."""

    @property
    def loss_mask(self) -> tuple[bool, ...]:
        """Which tokens the loss covers."""
        if self.trained is not None:
            return self.trained
        return tuple(chosen(flag) for flag in self.flags)

    @property
    def num_sampled(self) -> int:
        """Tokens the loss covers."""
        return sum(self.loss_mask)


PromptKind = Literal["opened", "grown", "branched", "forked"]
"""`opened`: a new conversation; `grown`: a recorded path went on; `branched`: another way on from
a recorded place; `forked`: recorded history had to be rendered and encoded anew."""


class Fidelity(Settings):
    """How one prompt came about: what of it is recorded, what had to be encoded anew."""

    agent: str
    kind: PromptKind
    reason: str = ""
    """Of a fork: why the recorded tokens could not be continued."""
    prompt_tokens: int
    recorded_tokens: int = 0
    """Of the prompt, the tokens taken from the record as they were."""
    exact: bool = True
    """The template writes the recorded history as the model had written it. Where not, the last
    answer's text differs in wording only (spaces in JSON, dropped text), and its ids are kept."""
    has_history: bool = False
    """The conversation held answers already, so that it could have drifted."""
    constrained: bool = False
    """The answer was held to a form, and not drawn from all that the policy could have said."""


OutcomeStatus = Literal["finished", "truncated", "model_failed", "infrastructure_failed"]


class Outcome(Settings):
    """How an episode ended."""

    status: OutcomeStatus = "finished"
    reason: str = ""
    fix: str = ""
    """What to do about a failure, where whoever raised it knows."""
    score: Score | None = None
    """Set by an environment that judges by itself."""
    artifacts: dict[str, JsonValue] = {}


LARGEST_SCORE = 1e18
"""Advantages are computed in float32, which cannot hold the squares of larger numbers."""


def is_countable(value: float) -> bool:
    """Whether a number can be a reward: finite, and no larger than can be computed with."""
    return abs(value) <= LARGEST_SCORE


class Score(Settings):
    """A reward with its components. An episode without one could not be judged."""

    value: float
    components: dict[str, float] = {}
    turns: tuple[float, ...] | None = None
    agents: dict[str, float] | None = None
    details: dict[str, JsonValue] = {}
    """What else the judge found, for people: failed cases, tampering, the tier of isolation."""


class Counters(Settings):
    """The three counters every record carries, as far as they apply."""

    batch: int | None = None
    """Rollout batches collected so far."""
    optimizer_step: int | None = None
    """Updates of the weights so far."""
    policy_version: int | None = None
    """What the sampler serves."""


class Episode(Settings):
    """One attempt at one task. What a reward function gets."""

    id: str
    task: Task
    group: str
    """Episodes of one task in one batch."""
    member: int = 0
    """Place in the group."""
    stream: str = "train"
    """`train`, or the name of the evaluation."""
    messages: tuple[Message, ...] = ()
    """The whole conversation of the policy under training, prompt included."""
    conversations: dict[str, tuple[Message, ...]] = {}
    """The latest conversation of every other agent, by its name."""
    trajectories: tuple[Trajectory, ...] = ()
    outcome: Outcome = Field(default_factory=Outcome)
    score: Score | None = None
    counters: Counters = Field(default_factory=Counters)
    duration_s: float = 0.0
    retries: int = 0
    """Times this episode was played again after an infrastructure failure."""
    forks: int = 0
    """Requests whose history differed from the recorded tokens, so that a new path began."""
    fidelity: tuple[Fidelity, ...] = ()
    """How each prompt came about, in the order of the requests."""

    @property
    def completion(self) -> str:
        """The text of the last assistant message; for a raw prompt, what was sampled."""
        for message in reversed(self.messages):
            if message.role == "assistant":
                return message.text
        return ""

    @property
    def answer(self) -> Any:
        """The task's expected answer."""
        return self.task.answer

    @property
    def num_tokens(self) -> int:
        """Sampled tokens over all trajectories."""
        return sum(trajectory.num_sampled for trajectory in self.trajectories)


Outcome.model_rebuild()
Episode.model_rebuild()
