"""Episodes as OpenTelemetry GenAI spans: `invoke_agent`, below it `chat` and `execute_tool`.

Conventions: semantic-conventions-genai 1.37, still in development; what it has no name for stands
under `training_gym.`. Turns are not timed one by one, so they carry their episode's times. What was
said is left out unless asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from training_gym.records.export.tables import every_episode
from training_gym.records.index import EpisodeDetail, Index
from training_gym.records.index.episode_heads import text_of

CONVENTIONS = "https://opentelemetry.io/schemas/1.37.0"
SPANS_AT_ONCE = 500


def requests(index: Index, run_id: str, *, content: bool = False) -> Iterator[dict[str, Any]]:
    """Bodies for `POST /v1/traces` (OTLP over HTTP, JSON), every episode in one trace.

    With `content`, messages and tool results travel too.
    """
    model = index.overview(run_id).row.model
    spans: list[dict[str, Any]] = []
    for row in every_episode(index, run_id):
        detail = index.episode(run_id, row.id, tokens=False)
        spans += spans_of(run_id, model, detail, content=content)
        if len(spans) >= SPANS_AT_ONCE:
            yield _request(run_id, spans)
            spans = []
    if spans:
        yield _request(run_id, spans)


def spans_of(
    run_id: str, model: str, found: EpisodeDetail, *, content: bool
) -> list[dict[str, Any]]:
    """The spans of one episode, its root first."""
    row = found.row
    trace = hashlib.sha256(f"{run_id}/{row.attempt}/{row.id}".encode()).hexdigest()[:32]
    times = _times(row.time - row.duration_s, row.time)
    root = _span(
        trace,
        0,
        f"invoke_agent {row.environment or 'policy'}",
        times,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": row.environment or "policy",
            "gen_ai.request.model": model,
            "gen_ai.conversation.id": row.id,
            "gen_ai.usage.input_tokens": row.prompt_tokens,
            "gen_ai.usage.output_tokens": row.tokens,
            "training_gym.run": run_id,
            "training_gym.task": row.task,
            "training_gym.group": row.group,
            "training_gym.stream": row.stream,
            "training_gym.step": row.step,
            "training_gym.reward": row.reward,
            "training_gym.advantage": row.advantage,
            "training_gym.status": row.status,
            **{f"training_gym.reward.{name}": value for name, value in row.components.items()},
        },
    )
    if row.status.endswith("failed"):
        root["status"] = {"code": 2, "message": row.reason}
    messages = found.episode.get("messages")
    said = [m for m in messages if isinstance(m, Mapping)] if isinstance(messages, Sequence) else []
    return [root, *_turns(trace, times, model, said, root["spanId"], content=content)]


def _turns(
    trace: str,
    times: tuple[str, str],
    model: str,
    messages: Sequence[Mapping[str, Any]],
    parent: str,
    *,
    content: bool,
) -> Iterator[dict[str, Any]]:
    before: list[Mapping[str, Any]] = []
    for number, message in enumerate(messages, 1):
        if message.get("role") == "assistant":
            fields: dict[str, Any] = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": model,
            }
            if content:
                fields["gen_ai.input.messages"] = json.dumps([_part(m) for m in before])
                fields["gen_ai.output.messages"] = json.dumps([_part(message)])
            yield _span(trace, number, f"chat {model}", times, fields, parent=parent)
        elif message.get("role") == "tool":
            tool = str(message.get("name") or "tool")
            fields = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool,
                "gen_ai.tool.call.id": message.get("tool_call_id"),
            }
            if content:
                fields["gen_ai.tool.call.result"] = text_of(dict(message))
            yield _span(trace, number, f"execute_tool {tool}", times, fields, parent=parent)
        before.append(message)


def _part(message: Mapping[str, Any]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": text_of(dict(message))}]
    parts += [
        {
            "type": "tool_call",
            "id": call.get("id"),
            "name": call.get("name"),
            "arguments": call.get("arguments"),
        }
        for call in message.get("tool_calls") or ()
    ]
    return {"role": message.get("role"), "parts": parts}


def _span(
    trace: str,
    number: int,
    name: str,
    times: tuple[str, str],
    fields: Mapping[str, Any],
    *,
    parent: str = "",
) -> dict[str, Any]:
    identity = hashlib.sha256(f"{trace} {number}".encode()).hexdigest()[:16]
    return {
        "traceId": trace,
        "spanId": identity,
        **({"parentSpanId": parent} if parent else {}),
        "name": name,
        "kind": 3 if parent else 1,
        "startTimeUnixNano": times[0],
        "endTimeUnixNano": times[1],
        "attributes": [
            {"key": key, "value": _value(value)}
            for key, value in fields.items()
            if value is not None
        ],
    }


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}


def _times(start: float, end: float) -> tuple[str, str]:
    return str(int(start * 1e9)), str(int(end * 1e9))


def _request(run_id: str, spans: list[dict[str, Any]]) -> dict[str, Any]:
    named = {"service.name": "training-gym", "service.instance.id": run_id}
    attributes = [{"key": key, "value": _value(value)} for key, value in named.items()]
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": attributes},
                "schemaUrl": CONVENTIONS,
                "scopeSpans": [{"scope": {"name": "training_gym"}, "spans": spans}],
            }
        ]
    }
