"""What a run needs of whoever draws its tokens, beyond what any sampler offers."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from training_gym.spec.errors import EngineError
from training_gym.spec.sampling import Prompt, Sampler, Sampling


@dataclass
class SamplerStatistics:
    """What a sampler has computed since it was made."""

    prefilled_tokens: int = 0
    steps: int = 0
    busy_seconds: float = 0.0


class RunSampler(Sampler, Protocol):
    """A sampler in the trainer's process or processes: it sees weights change in place."""

    @property
    def statistics(self) -> SamplerStatistics:
        """What it has computed so far."""
        ...

    @property
    def version(self) -> int:
        """Of the weights it draws from."""
        ...

    def take_up(self, version: int) -> None:
        """The weights in memory have become `version`. On the compute thread."""
        ...

    async def forget(self) -> None:
        """Drop what is warm, as if the process had just started."""
        ...

    def presence(self, session: str) -> AbstractAsyncContextManager[None]:
        """Say that an episode is in play."""
        ...

    async def close(self) -> None:
        """Stop; requests in flight are cancelled."""
        ...


def require_sampleable(prompt: Prompt, sampling: Sampling) -> None:
    """Raise `EngineError` for what no sampler of this engine can draw."""
    if prompt.media:
        raise EngineError(
            "the embedded engine samples text only, the prompt has media",
            fix="remove the images or choose an engine that takes them",
        )
    if not prompt.token_ids:
        raise EngineError("the prompt has no tokens", fix="give the task a prompt")
    if sampling.max_tokens is None:
        raise EngineError("max_tokens is open", fix="set sampling.max_tokens")
