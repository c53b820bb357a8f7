"""A tool as an episode has it, and how a call becomes the message that answers it.

Whatever goes wrong with a call is told to the model, which may do better next time: arguments that
are no JSON come back as they were written, an exception becomes its words. Only the failures of
infrastructure (`SandboxError`, `EnvironmentFailure`) end the episode.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pydantic_core
from pydantic import BaseModel, ValidationError

from training_gym.environments.tools.signature import SUPPLIED, arguments_model, spec_of
from training_gym.spec.errors import EnvironmentFailure, SandboxError, SpecError
from training_gym.spec.messages import Message, ToolCall, ToolSpec


class Mistake(Exception):
    """What a model did wrong with a call; the text is for the model."""


@dataclass(frozen=True)
class Tool:
    """A tool ready to be called."""

    spec: ToolSpec
    call: Callable[[dict[str, Any]], Awaitable[str]]
    """From the arguments, an object of JSON, to the text that the model reads."""
    timeout_s: float


def function_tool(
    function: Callable[..., Any], supplied: Mapping[str, Any], timeout_s: float
) -> Tool:
    """A plain or asynchronous function as a tool.

    Plain ones run in a thread of their own. Beyond its time a thread cannot be ended, only left
    behind: what may hang is better run in a sandbox.

    Args:
        function: Its parameters must be annotated; the docstring is what the model is told.
        supplied: What parameters called `ctx`, `state` and `sandbox` are given.
        timeout_s: Seconds one call may take.
    """
    arguments = arguments_model(function)
    wanted = [name for name in inspect.signature(function).parameters if name in SUPPLIED]
    missing = next((name for name in wanted if name not in supplied), None)
    if missing is not None:
        raise SpecError(
            f"tool {function.__name__} works in a {missing}, and the environment has none",
            fix=f"give the environment {missing}=…",
        )

    async def call(given: dict[str, Any]) -> str:
        checked = _checked(arguments, given)
        named = {name: getattr(checked, name) for name in arguments.model_fields}
        named |= {name: supplied[name] for name in wanted}
        if inspect.iscoroutinefunction(function):
            return as_text(await function(**named))
        return as_text(await _in_thread(lambda: function(**named)))

    return Tool(spec_of(function, arguments), call, timeout_s)


async def answer(call: ToolCall, tools: Mapping[str, Tool], *, max_chars: int) -> Message:
    """The tool message for one call, whatever becomes of it."""
    try:
        text = await _result(call, tools)
    except Mistake as mistake:
        text = f"error: {mistake}"
    if len(text) > max_chars:
        text = f"{text[:max_chars]}\n… {len(text) - max_chars} more characters were cut off"
    return Message(role="tool", content=text, tool_call_id=call.id, name=call.name)


async def _result(call: ToolCall, tools: Mapping[str, Tool]) -> str:
    tool = tools.get(call.name)
    if tool is None:
        raise Mistake(f"there is no tool {call.name!r}; there are: {', '.join(sorted(tools))}")
    given = _object(call.arguments)
    try:
        async with asyncio.timeout(tool.timeout_s) as limit:
            return await tool.call(given)
    except (Mistake, SandboxError, EnvironmentFailure):
        raise
    except TimeoutError as error:
        if limit.expired():
            raise Mistake(f"{call.name} took longer than {tool.timeout_s:g} s") from None
        raise Mistake(f"TimeoutError: {error}") from None
    # The boundary to the tool's own code, `sys.exit` included: the model is told.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        raise Mistake(f"{type(error).__name__}: {error}") from None


def _object(written: str) -> dict[str, Any]:
    try:
        given = json.loads(written) if written.strip() else {}
    except ValueError as error:
        raise Mistake(f"the arguments are no JSON ({error}); you wrote: {written}") from None
    if not isinstance(given, dict):
        raise Mistake(f"the arguments are no JSON object; you wrote: {written}")
    return given


def _checked(arguments: type[BaseModel], given: dict[str, Any]) -> BaseModel:
    try:
        return arguments.model_validate(given)
    except ValidationError as error:
        found = "; ".join(
            f"{'.'.join(map(str, entry['loc'])) or 'arguments'}: {entry['msg']}"
            for entry in error.errors(include_url=False)
        )
        raise Mistake(f"{found}; you wrote: {json.dumps(given, ensure_ascii=False)}") from None


def as_text(value: Any) -> str:
    """What a model reads of a function's result: text as it is, everything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return pydantic_core.to_json(value, inf_nan_mode="strings").decode()
    except pydantic_core.PydanticSerializationError:
        return str(value)


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Run in a new daemon thread, so that one that hangs keeps no other call waiting."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(result) if error is None else future.set_exception(error)

    def run() -> None:
        result: Any = None
        error: Exception | None = None
        try:
            result = function()
        except StopIteration as stop:  # a future takes no such exception
            error = RuntimeError(f"StopIteration: {stop}")
        except BaseException as raised:  # noqa: BLE001 - handed to the caller
            error = raised if isinstance(raised, Exception) else _exit(raised)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=f"tool-{id(future):x}", daemon=True).start()
    return await future


def _exit(raised: BaseException) -> Exception:
    """`sys.exit` in a tool is that tool's failure, not ours."""
    return RuntimeError(f"{type(raised).__name__}: {raised}")
