"""One call of `generate` in flight: what was asked, what has been drawn, when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from training_gym.engines.local.draws import Draw, uniform
from training_gym.engines.local.grammars import Matcher
from training_gym.spec.errors import EngineError
from training_gym.spec.sampling import Completion, SampleKey, Sampling, StopReason
from training_gym.spec.text import TextCodec


@dataclass(eq=False)
class Request:
    """One call of `generate` in flight; equal to itself only."""

    prompt: tuple[int, ...]
    sampling: Sampling
    key: SampleKey
    session: str | None
    adapter: str
    future: asyncio.Future[Completion]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    prefilled: int = 0
    row: int = -1
    stream: int = 0
    matcher: Matcher | None = None
    """Of the grammar that the answer is held to."""
    forced: list[bool] = field(default_factory=list)
    """Of a held answer: whether each token was the only one allowed."""
    _is_only: bool = False
    """Whether the next token is."""

    @property
    def order(self) -> tuple[str, int, str, int, int]:
        """Where the request stands in a deterministic queue."""
        key = self.key
        return key.stream, key.visit, key.task, key.member, key.turn

    @property
    def last_token(self) -> int:
        """What the next token follows."""
        return (self.tokens or self.prompt)[-1]

    def wish(self, codec: TextCodec) -> Draw:
        """What the next token is drawn by; raises `EngineError` for a form that goes no further."""
        position = len(self.tokens)
        if self.matcher is not None:
            allowed = self.matcher.allowed()
            self._is_only = int(allowed.sum()) == 1
            return Draw(self.sampling, uniform(self.stream, position), allowed=allowed)
        early = position < self.sampling.min_tokens
        return Draw(
            self.sampling,
            uniform(self.stream, position),
            banned=tuple(codec.stop_ids) if early else (),
        )

    def take(self, token: int, logprob: float, version: int) -> None:
        """One token more, drawn from weights of that version."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)
        if self.matcher is not None:
            self.matcher.take(token)
            self.forced.append(self._is_only)

    def begin_again(self) -> None:
        """Forget what was drawn; the same numbers draw it once more."""
        for drawn in (self.tokens, self.logprobs, self.versions, self.forced):
            drawn.clear()
        if self.matcher is not None:
            self.matcher.begin_again()

    def stop_reason(self, codec: TextCodec, max_sequence_tokens: int) -> StopReason | None:
        """Why the answer ends with its last token; None: it goes on."""
        sampling = self.sampling
        if self.tokens[-1] in codec.stop_ids:
            return "stop"
        if sampling.stop and len(self.tokens) >= sampling.min_tokens:
            # A stop text cannot span more tokens than it has bytes.
            span = max(len(text.encode()) for text in sampling.stop)
            tail = codec.decode(self.tokens[-span - 4 :])
            if any(text in tail for text in sampling.stop):
                return "stop"
        if len(self.prompt) + len(self.tokens) >= max_sequence_tokens:
            return "context"
        if len(self.tokens) >= (sampling.max_tokens or 0):
            return "length"
        return None

    def completion(self, reason: StopReason) -> Completion:
        """The whole answer."""
        return Completion(
            token_ids=tuple(self.tokens),
            logprobs=tuple(self.logprobs),
            versions=tuple(self.versions),
            stop_reason=reason,
            prefilled=self.prefilled,
            forced=tuple(self.forced) if any(self.forced) else (),
        )


def wishes_of(
    requests: Sequence[Request], codec: TextCodec
) -> tuple[dict[Request, Draw], dict[Request, EngineError]]:
    """What each request's next token is drawn by; whose form goes no further, and why."""
    wishes: dict[Request, Draw] = {}
    broken: dict[Request, EngineError] = {}
    for request in requests:
        try:
            wishes[request] = request.wish(codec)
        except EngineError as error:
            broken[request] = error
    return wishes, broken
