"""OpenAI Completions: a raw text and its continuation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from training_gym.rollouts.gateway.asked import (
    Asked,
    Body,
    Draw,
    Event,
    Remembered,
    finish_of,
    finite,
    pieces,
    read_body,
)
from training_gym.rollouts.gateway.dialects.chat import (
    NEUTRAL,
    StreamOptions,
    stops_of,
    usage_of,
)
from training_gym.rollouts.gateway.refusals import Refused
from training_gym.rollouts.policy import Sample


class CompletionRequest(Body):
    """What is understood of a request."""

    model: str
    prompt: str | Annotated[list[str], Field(min_length=1, max_length=1)]
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] = 16
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    n: Annotated[int, Field(ge=1, le=64)] = 1
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    logprobs: Literal[0] | None = None
    user: str | None = None
    metadata: dict[str, JsonValue] | None = None


class Completions:
    """Implements `Dialect`."""

    name = "completions"
    named_errors = False

    def read(self, body: Any, tolerated: frozenset[str], memory: Remembered) -> Asked:
        """See `Dialect`."""
        neutral = {**NEUTRAL, "echo": (False,), "suffix": ("",), "best_of": (1,)}
        asked = read_body(CompletionRequest, body, neutral=neutral, tolerated=tolerated)
        prompt = asked.prompt if isinstance(asked.prompt, str) else asked.prompt[0]
        if not prompt:
            raise Refused("an empty prompt", fix="give a text to continue", param="prompt")
        return Asked(
            prompt=prompt,
            model=asked.model,
            draw=Draw(
                temperature=asked.temperature,
                top_p=asked.top_p,
                top_k=None if asked.top_k is None else max(asked.top_k, 0),
                max_tokens=asked.max_tokens,
                min_tokens=asked.min_tokens,
                stop=stops_of(asked.stop),
                seed=asked.seed,
            ),
            count=asked.n,
            stream=asked.stream,
            with_usage=asked.stream_options.include_usage,
            with_logprobs=asked.logprobs is not None,
        )

    def answer(self, asked: Asked, samples: Sequence[Sample], answer_id: str) -> dict[str, Any]:
        """See `Dialect`."""
        choices = [
            {
                "index": index,
                "text": sample.message.text,
                "finish_reason": finish_of(sample),
                "logprobs": _logprobs(sample) if asked.with_logprobs else None,
            }
            for index, sample in enumerate(samples)
        ]
        return {**_head(asked, answer_id), "choices": choices, "usage": usage_of(samples)}

    def events(self, asked: Asked, samples: Sequence[Sample], answer_id: str) -> Iterator[Event]:
        """See `Dialect`."""
        head = _head(asked, answer_id)

        def chunk(index: int, text: str, **more: Any) -> Event:
            choice = {"index": index, "text": text, "finish_reason": None, "logprobs": None}
            return None, {**head, "choices": [{**choice, **more}]}

        for index, sample in enumerate(samples):
            for piece in pieces(sample.message.text):
                yield chunk(index, piece)
            logprobs = _logprobs(sample) if asked.with_logprobs else None
            yield chunk(index, "", finish_reason=finish_of(sample), logprobs=logprobs)
        if asked.with_usage:
            yield None, {**head, "choices": [], "usage": usage_of(samples)}
        yield None, "[DONE]"


def _head(asked: Asked, answer_id: str) -> dict[str, Any]:
    head = {"id": answer_id, "object": "text_completion", "created": int(time.time())}
    return {**head, "model": asked.model}


def _logprobs(sample: Sample) -> dict[str, Any]:
    tokens = [sample.decode((token,)) for token in sample.completion.token_ids]
    offsets = [0]
    for text in tokens[:-1]:
        offsets.append(offsets[-1] + len(text))
    return {
        "tokens": tokens,
        "token_logprobs": [finite(value) for value in sample.completion.logprobs],
        "top_logprobs": None,
        "text_offset": offsets[: len(tokens)],
    }
