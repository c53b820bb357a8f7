"""A request in no dialect: what is asked of the policy."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from training_gym.rollouts.gateway.refusals import Refused
from training_gym.rollouts.policy import Sample
from training_gym.spec.errors import did_you_mean
from training_gym.spec.forms import AnswerForm
from training_gym.spec.messages import Message, ToolSpec
from training_gym.spec.sampling import Sampling

PIECE = re.compile(r"\s*\S+\s*|\s+")
"""A streamed text comes in words."""


@dataclass(frozen=True)
class Draw:
    """How a request wants its answer drawn; None: as the session does."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    """Of random numbers for these answers alone."""

    def over(self, own: Sampling, *, pinned: bool) -> Sampling:
        """The session's sampling with what is wished for, no longer than the session allows.

        Pinned, the distribution stays the session's; lengths and stop texts are the request's.
        """
        wished: dict[str, Any] = {"max_tokens": self.max_tokens, "min_tokens": self.min_tokens}
        if not pinned:
            wished |= {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}
        changes = {name: value for name, value in wished.items() if value is not None}
        if own.max_tokens is not None and self.max_tokens is not None:
            changes["max_tokens"] = min(own.max_tokens, self.max_tokens)
        if self.stop:
            changes["stop"] = self.stop
        return own.changed(**changes) if changes else own


@dataclass(frozen=True)
class Asked:
    """A request, understood."""

    prompt: tuple[Message, ...] | str
    model: str
    draw: Draw
    tools: tuple[ToolSpec, ...] = ()
    count: int = 1
    stream: bool = False
    with_usage: bool = False
    """Whether a stream of OpenAI's ends with the usage."""
    with_logprobs: bool = False
    form: AnswerForm | None = None
    """What the answer has to be; None: whatever the policy says."""
    form_asked_by: str = ""
    """The parameter that asks for a form."""
    shown: Mapping[str, Any] | None = None
    """What the dialect shows again in its answer."""


Event = tuple[str | None, Mapping[str, Any] | str]
"""A server-sent event: its name, if the dialect names events, and its data."""


class Remembered(Protocol):
    """Conversations by the id of the answer that ended them."""

    def recall(self, answer_id: str) -> tuple[Message, ...]:
        """Raises `Refused` for an answer that this session did not give."""
        ...


class Dialect(Protocol):
    """One way to speak to the policy over HTTP."""

    name: str
    named_errors: bool
    """Whether an error's body is Anthropic's."""

    def read(self, body: Any, tolerated: frozenset[str], memory: Remembered) -> Asked:
        """Understand a request's JSON; raises `Refused`."""
        ...

    def answer(self, asked: Asked, samples: Sequence[Sample], answer_id: str) -> dict[str, Any]:
        """The JSON of the answer."""
        ...

    def events(self, asked: Asked, samples: Sequence[Sample], answer_id: str) -> Iterator[Event]:
        """The same answer as a stream."""
        ...


class Body(BaseModel):
    """A request's JSON: closed, so that nothing a client asks for is dropped unseen."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


Kind = TypeVar("Kind", bound=Body)


def read_body(
    kind: type[Kind], body: Any, *, neutral: Mapping[str, Sequence[Any]], tolerated: frozenset[str]
) -> Kind:
    """Validate a request.

    Args:
        kind: what is understood.
        body: JSON as it came; null means absent.
        neutral: parameters that are not supported, with the values that ask for nothing.
        tolerated: parameters that the session's owner has said may be dropped.
    """
    if not isinstance(body, dict):
        raise Refused("the body is no JSON object", fix="send one object")
    fields = {
        name: value
        for name, value in body.items()
        if value is not None and name not in tolerated and value not in neutral.get(name, ())
    }
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise _refused(kind, error, neutral) from None


def _refused(
    kind: type[Body], error: ValidationError, neutral: Mapping[str, Sequence[Any]]
) -> Refused:
    first = min(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    where = ".".join(str(part) for part in first["loc"])
    name = str(first["loc"][-1]) if first["loc"] else ""
    given = repr(first.get("input"))[:60]
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        fix = did_you_mean(name, kind.model_fields)
        if name in neutral:
            fix = f"leave it out: this sampler cannot do it (without effect: {neutral[name]!r})"
        return Refused(
            f"parameter {name} = {given} is not supported",
            fix=fix,
            code="unsupported_parameter",
            param=name,
        )
    return Refused(
        f"{where} = {given}: {first['msg']}",
        fix=f"change {where}",
        code="unsupported_value" if first["type"] == "extra_forbidden" else "invalid_value",
        param=where or None,
    )


def finish_of(sample: Sample) -> str:
    """`length`, `tool_calls` or `stop`: how an answer ended."""
    if sample.completion.stop_reason in ("length", "context"):
        return "length"
    return "tool_calls" if sample.message.tool_calls else "stop"


def reasoning_tokens(sample: Sample) -> int:
    """Sampled tokens up to the end of the reasoning."""
    reasoning = sample.message.reasoning
    if not reasoning:
        return 0
    ids = sample.completion.token_ids
    return bisect_left(
        range(len(ids)), True, key=lambda count: reasoning in sample.decode(ids[:count])
    )


def pieces(text: str) -> Iterator[str]:
    """A text in words."""
    return (found.group() for found in PIECE.finditer(text))


def finite(value: float) -> float:
    """A log-probability as JSON takes it."""
    return value if math.isfinite(value) else -9999.0


def token_entries(sample: Sample) -> list[dict[str, Any]]:
    """One entry a sampled token, special tokens included: these are the ids that are trained."""
    drawn = zip(sample.completion.token_ids, sample.completion.logprobs, strict=True)
    entries = []
    for token, logprob in drawn:
        text = sample.decode((token,))
        entry = {"token": text, "logprob": finite(logprob), "bytes": list(text.encode())}
        entries.append({**entry, "top_logprobs": []})
    return entries
