"""Environments of NeMo Gym, by the requests that its own agents send to a resources server.

Nothing of the package is imported: it wants a newer Python than we do, and its servers are
processes anyway. Start one (`gym env start`, or its app by uvicorn) and give its address.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from pydantic import Field, JsonValue

from training_gym.spec.environment import Context, Policy
from training_gym.spec.episodes import Outcome, Score
from training_gym.spec.errors import EnvironmentFailure, SpecError
from training_gym.spec.messages import Message, ToolCall, ToolSpec
from training_gym.spec.settings import Settings
from training_gym.spec.tasks import Task

PARAMETERS = "responses_create_params"
"""The column of a row in which NeMo Gym keeps prompt and tools."""


class NemoGymEnvironment(Settings):
    """Plays rows of a NeMo Gym data set against its resources server: seed, tools, verify.

    Tools are the server's: an answer's calls go there one after the other, in one session, and what
    it says goes back to the model, refusals included. Its `verify` gives the reward.
    """

    url: str
    """The resources server's address, such as `http://127.0.0.1:8000`."""
    max_turns: int = Field(16, ge=1)
    """Answers after which the episode ends as it is; it is verified all the same."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds for one request; a slow verifier wants more."""

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """Seed a session, let the policy use its tools, verify."""
        row = dict(task.metadata)
        if task.answer is not None:
            row.setdefault("answer", task.answer)  # a column that we know by name
        given = row.get(PARAMETERS)
        if not isinstance(given, dict):
            raise EnvironmentFailure(
                f"the row has no object in its column {PARAMETERS}",
                fix="make the rows with nemo_gym_rows(FILE)",
            )
        tools = [_tool(each) for each in _objects(given.get("tools"))]
        messages = list(read_input(given.get("input")))
        output: list[dict[str, Any]] = []
        ended = False
        async with httpx.AsyncClient(base_url=self.url, timeout=self.timeout_s) as http:
            await self._posted(http, "/seed_session", row)
            for turn in range(self.max_turns):
                reply = await policy.chat(messages, tools=tools)
                output += _written(reply, turn)
                messages = [*messages, reply]
                if not reply.tool_calls:
                    ended = True
                    break
                for call in reply.tool_calls:
                    said = await self._called(http, call)
                    output.append(
                        {"type": "function_call_output", "call_id": call.id, "output": said}
                    )
                    messages.append(
                        Message(role="tool", content=said, tool_call_id=call.id, name=call.name)
                    )
            response = _response(task.id, given, output)
            verdict = await self._posted(http, "/verify", {**row, "response": response})
        outcome = _outcome(verdict)
        if not ended:
            reason = f"no answer after {self.max_turns} turns"
            outcome = outcome.changed(status="truncated", reason=reason)
        return outcome

    async def _called(self, http: httpx.AsyncClient, call: ToolCall) -> str:
        """What a tool says; arguments that are no JSON are the model's mistake, and told so."""
        try:
            arguments = json.loads(call.arguments or "{}")
        except ValueError as error:
            return json.dumps({"error": f"the arguments are no JSON: {error}: {call.arguments}"})
        response = await self._sent(http, f"/{call.name}", arguments)
        return response.text

    async def _posted(self, http: httpx.AsyncClient, path: str, body: Any) -> dict[str, Any]:
        response = await self._sent(http, path, body)
        if response.status_code >= 400:
            raise EnvironmentFailure(
                f"{self.url}{path} refused: {response.status_code} {response.text[:200]}",
                fix="check that the rows are that server's",
            )
        found: dict[str, Any] = response.json() or {}
        return found

    async def _sent(self, http: httpx.AsyncClient, path: str, body: Any) -> httpx.Response:
        try:
            return await http.post(path, json=body)
        except httpx.HTTPError as error:
            raise EnvironmentFailure(
                f"the NeMo Gym server at {self.url} gave no answer to {path}: "
                f"{type(error).__name__}: {error}",
                fix="check that it runs, and raise timeout_s if it is slow",
            ) from error


def nemo_gym_rows(path: str | Path, *, limit: int | None = None) -> Iterator[dict[str, JsonValue]]:
    """Rows of a NeMo Gym data set for `TrainConfig(dataset=list(…))`.

    Args:
        path: A file of JSON lines with `responses_create_params` in each.
        limit: At most so many.
    """
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if limit is not None and number > limit:
                return
            row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row.get(PARAMETERS), dict):
                raise SpecError(
                    f"{path}, line {number} has no object {PARAMETERS}",
                    fix="give a file of a NeMo Gym environment's data folder",
                )
            prompt: Any = [
                message.model_dump(mode="json", include={"role", "content"})
                for message in read_input(row[PARAMETERS].get("input"))
            ]
            yield {**row, "prompt": prompt}


def read_input(given: Any) -> Iterator[Message]:
    """The messages of an `input` of OpenAI's Responses."""
    if isinstance(given, str):
        yield Message(role="user", content=given)
        return
    for item in _objects(given):
        content = item.get("content", "")
        if not isinstance(content, str):
            content = "".join(str(part.get("text", "")) for part in _objects(content))
        role = {"developer": "system"}.get(str(item.get("role")), item.get("role"))
        yield Message.read({"role": role, "content": content})


def _tool(given: dict[str, Any]) -> ToolSpec:
    return ToolSpec(
        name=given["name"],
        description=given.get("description") or "",
        parameters=given.get("parameters") or {"type": "object", "properties": {}},
    )


def _written(reply: Message, turn: int) -> list[dict[str, Any]]:
    """An answer as output items."""
    items: list[dict[str, Any]] = []
    if reply.text or not reply.tool_calls:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        head = {"type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed"}
        items.append({**head, "content": content})
    for call in reply.tool_calls:
        named = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        items.append({"type": "function_call", "id": f"fc_{call.id}", **named})
    return items


def _response(name: str, given: dict[str, Any], output: list[dict[str, Any]]) -> dict[str, Any]:
    """The whole episode as one answer of OpenAI's Responses."""
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 0,
        "model": "policy",
        "output": output,
        "parallel_tool_calls": bool(given.get("parallel_tool_calls", True)),
        "tool_choice": given.get("tool_choice") or "auto",
        "tools": given.get("tools") or [],
    }


def _outcome(verdict: dict[str, Any]) -> Outcome:
    """The verifier's reward, with every other number it gives as a component."""
    reward = verdict.get("reward")
    if not isinstance(reward, int | float):
        return Outcome(reason="the verifier said no reward")
    components = {
        name: float(value)
        for name, value in verdict.items()
        if name != "reward" and isinstance(value, int | float)
    }
    return Outcome(score=Score(value=float(reward), components=components))


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
