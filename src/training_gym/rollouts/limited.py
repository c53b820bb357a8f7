"""A policy that ends its episode at a limit, and keeps the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from training_gym.rollouts.attempts import Limits
from training_gym.rollouts.policy import Sample, SamplingPolicy
from training_gym.rollouts.seats import SeatedPolicy
from training_gym.spec.errors import EngineError
from training_gym.spec.messages import Message, ToolSpec, user
from training_gym.spec.sampling import Sampling


class LimitReached(BaseException):
    """The episode is over; says which limit. No `except Exception` swallows it."""


class Allowance:
    """The tokens that one episode may still sample, all its agents together."""

    def __init__(self, max_tokens: int | None) -> None:
        """None: as many as the turns allow."""
        self.max_tokens = max_tokens
        self._policies: list[SeatedPolicy] = []

    def share(self, policy: SeatedPolicy) -> None:
        """Count what this policy samples, too."""
        self._policies.append(policy)

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self._left == 0

    def cut(self, sampling: Sampling | None, default: Sampling) -> Sampling | None:
        """The sampling of the next answer; raises `LimitReached` where there is to be none."""
        left = self._left
        if left is None:
            return sampling
        if left == 0:
            raise LimitReached(f"{self.max_tokens} tokens")
        chosen = sampling or default
        longest = chosen.max_tokens or default.max_tokens or left
        return chosen.changed(max_tokens=min(longest, left))

    @property
    def _left(self) -> int | None:
        if self.max_tokens is None:
            return None
        return max(self.max_tokens - sum(policy.num_tokens for policy in self._policies), 0)


class LimitedPolicy:
    """Implements `spec.environment.Policy` around one agent's."""

    def __init__(
        self, inner: SeatedPolicy, limits: Limits, allowance: Allowance, sampling: Sampling
    ) -> None:
        """Pass calls on to `inner`, at most `limits.max_turns` of them."""
        self.inner = inner
        self.messages: list[Message] = []
        self._left = self._max_turns = limits.max_turns
        self._allowance = allowance
        self.sampling = sampling
        """How it draws where nobody says otherwise."""
        allowance.share(inner)

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: Sampling | None = None,
    ) -> Message:
        """See `spec.environment.Policy`."""
        sampling = self._next(sampling)
        reply = await self.inner.chat(messages, tools=tools, sampling=sampling)
        self.messages = [*messages, reply]
        return reply

    async def complete(self, text: str, *, sampling: Sampling | None = None) -> Message:
        """See `spec.environment.Policy`."""
        reply = await self.inner.complete(text, sampling=self._next(sampling))
        self.messages = [user(text), reply]
        return reply

    async def sample(
        self,
        messages: Sequence[Message] | str,
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: Sampling | None = None,
        cut_stop_text: bool = False,
        delivered: bool = True,
        seed: int | None = None,
    ) -> Sample:
        """See `SamplingPolicy`; raises `EngineError` where a server's model plays."""
        found = await self._sampler.sample(
            messages,
            tools=tools,
            sampling=self._next(sampling),
            cut_stop_text=cut_stop_text,
            delivered=delivered,
            seed=seed,
        )
        before = [user(messages)] if isinstance(messages, str) else messages
        self.messages = [*before, found.message]
        return found

    def prompt_length(self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = ()) -> int:
        """See `SamplingPolicy`; no turn. Raises `EngineError` where a server's model plays."""
        return self._sampler.prompt_length(messages, tools=tools)

    @property
    def _sampler(self) -> SamplingPolicy:
        if not hasattr(self.inner, "sample"):
            raise EngineError(
                "a harness is served by models of this engine, not by those of another server",
                fix="play with --model and without --endpoint",
            )
        return cast("SamplingPolicy", self.inner)

    def _next(self, sampling: Sampling | None) -> Sampling | None:
        """Count one turn; how it is sampled."""
        if self._left == 0:
            raise LimitReached(f"{self._max_turns} turns")
        allowed = self._allowance.cut(sampling, self.sampling)
        self._left -= 1
        return allowed
