"""Tokens in, tokens and log-probabilities out: the sampler's side of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

from pydantic import Field, JsonValue

from training_gym.spec.forms import AnswerForm, Grammar
from training_gym.spec.settings import Settings

StopReason = Literal["stop", "length", "context", "cancelled"]


class Sampling(Settings):
    """How tokens are drawn. Log-probabilities are those of the distribution drawn from.

    Held to a form, an answer is drawn from what the form allows, and its log-probabilities are
    those of the policy without the form, at the same temperature (see `Completion.forced`).
    """

    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    """0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Smallest set of tokens whose probability reaches this; 1 keeps all."""
    top_k: int = Field(0, ge=0)
    """Keep the k most probable tokens; 0 keeps all."""
    max_tokens: int | None = Field(None, ge=1)
    """Longest answer in tokens; None: the recipe's `max_response_tokens`."""
    min_tokens: int = Field(0, ge=0)
    """Stop tokens cannot be drawn before so many tokens."""
    stop: tuple[str, ...] = ()
    """Texts at which the answer ends, itself included in the sampled tokens."""
    form: Annotated[AnswerForm | Grammar, Field(discriminator="kind")] | None = None
    """What the answer has to be. Samplers take a grammar; policies make one of an `AnswerForm`."""


class SampleKey(Settings):
    """What a draw's random numbers depend on, and nothing else: not the batch it runs in."""

    seed: int
    task: str
    member: int = 0
    """Place of the episode in its group."""
    turn: int = 0
    visit: int = 0
    """Number of the draw that brought the task up: coming up again, it is answered anew."""
    stream: str = "train"
    """Training and each evaluation draw from different streams."""


class Prompt(Settings):
    """The ids a completion continues."""

    token_ids: tuple[int, ...]
    media: tuple[str, ...] = ()
    """Content addresses of the blobs that placeholder tokens stand for."""


class Completion(Settings):
    """What was sampled; all sequences have one entry per sampled token, stop token included."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural logarithms under the distribution actually sampled from."""
    versions: tuple[int, ...]
    """Policy version that drew each token."""
    stop_reason: StopReason
    prefilled: int = 0
    """Prompt tokens computed for this request (0: all came from a warm session or the group)."""
    forced: tuple[bool, ...] = ()
    """Tokens that were the only ones their form allowed, one entry each; empty: none was."""
    extras: dict[str, JsonValue] = {}


class WeightUpdate(Settings):
    """New weights for the sampler."""

    version: int
    base_version: int
    adapter: str | None = None
    """None: the whole model."""
    source: str = "memory"
    """`memory` where trainer and sampler share a process, else a path or address."""
    state_hash: str | None = None


class Sampler(Protocol):
    """Draws tokens. Concurrent and cancellable; a cancelled call frees its slot."""

    async def generate(
        self,
        prompt: Prompt,
        sampling: Sampling,
        key: SampleKey,
        *,
        session: str | None = None,
        adapter: str | None = None,
    ) -> Completion:
        """Continue `prompt`.

        Requests with one `session` keep their cache between turns.
        """
        ...

    async def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability of each token given those before it; 0.0 for the first."""
        ...

    async def update_weights(self, update: WeightUpdate) -> None:
        """Serve the new weights from the next token on."""
        ...

    async def end_session(self, session: str) -> None:
        """Free what a session kept."""
        ...
