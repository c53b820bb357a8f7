"""Episodes in Harbor's Agent Trajectory Interchange Format (ATIF), one file for each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from training_gym.records.export.tables import every_episode
from training_gym.records.index import EpisodeDetail, Index

VERSION = "ATIF-v1.4"


def write_atif(index: Index, run_id: str, folder: Path) -> tuple[Path, ...]:
    """`<episode>.json` for every episode that shows."""
    model = str(index.overview(run_id).row.model)
    written = []
    for number, row in enumerate(every_episode(index, run_id)):
        name = re.sub(r"[^A-Za-z0-9._-]", "_", row.id)[:80]
        path = folder / f"{number:06d}-{name}.json"
        found = index.episode(run_id, row.id, tokens=True)
        with open(path, "x", encoding="utf-8") as file:
            json.dump(trajectory(run_id, model, found), file)
        written.append(path)
    return tuple(written)


def trajectory(run_id: str, model: str, found: EpisodeDetail) -> dict[str, Any]:
    """An episode as ATIF: messages become steps, tool results observations of the step before."""
    messages = found.episode.get("messages")
    row = found.row
    steps: list[dict[str, Any]] = []
    moment = datetime.fromtimestamp(row.time, UTC).isoformat()
    for message in messages if isinstance(messages, Sequence) else ():
        if not isinstance(message, Mapping):
            continue
        if message.get("role") == "tool" and steps and steps[-1]["source"] == "agent":
            _observe(steps[-1], message)
        else:
            steps.append(_step(len(steps) + 1, message, model, moment))
    _count_tokens(steps, found)
    return {
        "schema_version": VERSION,
        "session_id": f"{run_id}/{row.id}",
        "agent": {"name": "training-gym", "version": "1", "model_name": model},
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": row.prompt_tokens,
            "total_completion_tokens": row.tokens,
            "total_steps": len(steps),
        },
        "extra": {
            "task": row.task,
            "group": row.group,
            "stream": row.stream,
            "status": row.status,
            "reason": row.reason,
            "reward": row.reward,
            "components": row.components,
        },
    }


def _step(number: int, message: Mapping[str, Any], model: str, moment: str) -> dict[str, Any]:
    role = message.get("role")
    source = {"assistant": "agent", "system": "system"}.get(str(role), "user")
    step: dict[str, Any] = {
        "step_id": number,
        "timestamp": moment,
        "source": source,
        "message": _text(message.get("content")),
    }
    if source != "agent":
        return step
    step["model_name"] = model
    if message.get("reasoning"):
        step["reasoning_content"] = str(message["reasoning"])
    calls = message.get("tool_calls") or ()
    if calls:
        step["tool_calls"] = [
            {
                "tool_call_id": str(call.get("id", "")),
                "function_name": str(call.get("name", "")),
                "arguments": _arguments(call.get("arguments")),
            }
            for call in calls
        ]
    return step


def _observe(step: dict[str, Any], message: Mapping[str, Any]) -> None:
    result: dict[str, Any] = {"content": _text(message.get("content"))}
    known = {call["tool_call_id"] for call in step.get("tool_calls", ())}
    if message.get("tool_call_id") in known:
        result["source_call_id"] = str(message["tool_call_id"])
    step.setdefault("observation", {"results": []})["results"].append(result)


def _count_tokens(steps: list[dict[str, Any]], found: EpisodeDetail) -> None:
    """Ids and log-probabilities of each answer, where one path holds all of them."""
    answers = [step for step in steps if step["source"] == "agent"]
    if len(found.trajectories) != 1:
        return
    path = found.trajectories[0]
    turns: list[list[int]] = []
    inside = False
    for place, flag in enumerate(path.flags):
        drawn = bool(flag & 1)
        if drawn and not inside:
            turns.append([])
        if drawn:
            turns[-1].append(place)
        inside = drawn
    if len(turns) != len(answers):
        return
    for step, places in zip(answers, turns, strict=True):
        step["metrics"] = {
            "prompt_tokens": places[0],
            "completion_tokens": len(places),
            "completion_token_ids": [path.ids[place] for place in places],
            "logprobs": [path.logprobs[place] for place in places],
        }


def _arguments(text: Any) -> dict[str, Any]:
    """ATIF wants an object; what the model wrote that is none is kept as it stands."""
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"raw": str(text)}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    return "".join(str(part.get("text", f"[{part.get('type')}]")) for part in parts)
