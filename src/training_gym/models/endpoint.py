"""A server's model as a policy: Chat Completions over HTTP, tried again where that may help."""

from __future__ import annotations

import asyncio
import copy
import json
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from training_gym.spec.endpoints import Endpoint
from training_gym.spec.errors import EnvironmentFailure, FormError
from training_gym.spec.forms import AnswerForm, Grammar
from training_gym.spec.messages import MediaPart, Message, ToolCall, ToolSpec, assistant
from training_gym.spec.sampling import Sampling, StopReason

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed."""

_ENDS: dict[str, StopReason] = {"length": "length", "stop": "stop", "tool_calls": "stop"}


class EndpointPolicy:
    """Implements `spec.environment.Policy` over a server. Close it, or leave it as a context.

    Of an answer only the text is known: nothing that it said can be trained on.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        sampling: Sampling | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            endpoint: Whom to ask. Raises `EnvironmentFailure` if its key's variable is not set.
            sampling: How, where a call does not say; what a server leaves open is its own choice.
            transport: Instead of the network.
        """
        self.endpoint = endpoint
        self.sampling = sampling
        self.stop_reasons: list[StopReason] = []
        self.num_tokens = 0
        """Answered so far, as the server counts."""
        self.num_prompt_tokens = 0
        self._room = asyncio.Semaphore(endpoint.concurrency)
        self._http = httpx.AsyncClient(
            base_url=endpoint.base_url.rstrip("/") + "/",
            headers=_authorization(endpoint),
            timeout=httpx.Timeout(endpoint.timeout_s, connect=10.0),
            transport=transport,
        )

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: Sampling | None = None,
    ) -> Message:
        """The answer; raises `EnvironmentFailure` where none came after all tries."""
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": [message_json(message) for message in messages],
            **_sampling_json(sampling or self.sampling),
        }
        form = (sampling or self.sampling or Sampling()).form
        if tools:
            body["tools"] = [
                {"type": "function", "function": tool.model_dump(mode="json")} for tool in tools
            ]
        if form is not None:
            body |= form_json(form, body.get("tools", ()))
        answer = await self._post("chat/completions", body)
        choice = answer["choices"][0]
        said = choice["message"]
        return Message(
            role="assistant",
            content=said.get("content") or "",
            reasoning=said.get("reasoning_content"),
            tool_calls=tuple(
                ToolCall(
                    id=call["id"],
                    name=call["function"]["name"],
                    arguments=call["function"]["arguments"],
                )
                for call in said.get("tool_calls") or ()
            ),
        )

    async def complete(self, text: str, *, sampling: Sampling | None = None) -> Message:
        """The continuation of a text, where the server offers Completions.

        Raises `FormError` where the answer is to have a form.
        """
        form = (sampling or self.sampling or Sampling()).form
        if form is not None:
            raise FormError(
                "a server's continuation of a raw text is held to no form",
                fix="ask with messages, or leave the form open",
            )
        body = {
            "model": self.endpoint.model,
            "prompt": text,
            **_sampling_json(sampling or self.sampling),
        }
        answer = await self._post("completions", body)
        return assistant(answer["choices"][0]["text"])

    def alone(self, sampling: Sampling | None = None) -> EndpointPolicy:
        """The same connections with counts, and a way of sampling, of its own."""
        other = copy.copy(self)
        other.sampling = sampling or self.sampling
        other.stop_reasons, other.num_tokens, other.num_prompt_tokens = [], 0, 0
        return other

    async def aclose(self) -> None:
        """End the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        trouble = ""
        for attempt in range(self.endpoint.attempts):
            wait_s = self.endpoint.backoff_s * 2**attempt
            try:
                async with self._room:
                    response = await self._http.post(path, json=body)
            except httpx.HTTPError as error:
                trouble = f"{type(error).__name__}: {error}".rstrip(": ")
            else:
                if response.status_code not in _AGAIN:
                    return self._read(response)
                trouble = f"status {response.status_code}"
                wait_s = _retry_after(response, wait_s)
            if attempt + 1 < self.endpoint.attempts:
                await asyncio.sleep(wait_s)
        raise EnvironmentFailure(
            f"{self.endpoint.base_url} gave no answer in {self.endpoint.attempts} tries: {trouble}",
            fix="check that the server runs and how many requests it takes at once",
        )

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        if response.status_code >= 400:
            raise EnvironmentFailure(
                f"{self.endpoint.base_url} refused: {response.status_code} {response.text[:200]}",
                fix=f"check the model's name ({self.endpoint.model}), the key and the request",
            )
        try:
            answer: dict[str, Any] = response.json()
            finish = answer["choices"][0].get("finish_reason")
        except (ValueError, LookupError, TypeError, AttributeError):
            raise EnvironmentFailure(
                f"{self.endpoint.base_url} answered with no completion: {response.text[:200]!r}",
                fix="give the base URL of an OpenAI-compatible server, which ends in /v1",
            ) from None
        self.stop_reasons.append(_ENDS.get(finish, "stop"))
        usage = answer.get("usage") or {}
        self.num_tokens += usage.get("completion_tokens") or 0
        self.num_prompt_tokens += usage.get("prompt_tokens") or 0
        return answer


def message_json(message: Message) -> dict[str, Any]:
    """A message as Chat Completions writes it; raises `EnvironmentFailure` for media."""
    if any(isinstance(part, MediaPart) for part in message.content):
        raise EnvironmentFailure(
            "a message for a server's model holds media, which have no address there",
            fix="leave the media out",
        )
    found: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    return found


def _sampling_json(sampling: Sampling | None) -> dict[str, Any]:
    """What was set, in the server's words."""
    if sampling is None:
        return {}
    found: dict[str, Any] = {"temperature": sampling.temperature}
    if sampling.top_p != 1.0:
        found["top_p"] = sampling.top_p
    if sampling.top_k:
        found["top_k"] = sampling.top_k
    if sampling.max_tokens is not None:
        found["max_tokens"] = sampling.max_tokens
    if sampling.min_tokens:
        found["min_tokens"] = sampling.min_tokens
    if sampling.stop:
        found["stop"] = list(sampling.stop)
    return found


def form_json(form: AnswerForm | Grammar, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """An answer's form in the words of Chat Completions; raises `FormError` for a grammar.

    Whether the server holds its answers to it is the server's to say.
    """
    if isinstance(form, Grammar):
        raise FormError(
            "servers take no grammar", fix="say what the answer has to be with an AnswerForm"
        )
    found: dict[str, Any] = {}
    if form.content_schema is not None:
        schema = {"name": "answer", "strict": True, "schema": json.loads(form.content_schema)}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    if not tools:
        return found
    names = form.callable_tools
    functions = [tool["function"] for tool in tools]
    found["tools"] = [
        {"type": "function", "function": {**each, "strict": each["name"] not in form.loose_tools}}
        for each in functions
        if names is None or each["name"] in names
    ]
    if form.most_calls == 0:
        found["tool_choice"] = "none"
    elif form.least_calls:
        found["tool_choice"] = "required"
    if form.most_calls == 1:
        found["parallel_tool_calls"] = False
    return found


def _authorization(endpoint: Endpoint) -> dict[str, str]:
    if endpoint.key_env is None:
        return {}
    key = os.environ.get(endpoint.key_env)
    if not key:
        raise EnvironmentFailure(
            f"{endpoint.key_env} is not set, which shall hold the key of {endpoint.base_url}",
            fix=f"export {endpoint.key_env}=…, and name it in the run's secrets",
        )
    return {"Authorization": f"Bearer {key}"}


def _retry_after(response: httpx.Response, otherwise_s: float) -> float:
    """Seconds the server asks to wait, at most a minute."""
    try:
        return min(max(float(response.headers["Retry-After"]), 0.0), 60.0)
    except (KeyError, ValueError):
        return otherwise_s
