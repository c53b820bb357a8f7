"""Tools in a loop: the policy calls them until it answers without a call."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, PrivateAttr

from training_gym.environments.opening import opening
from training_gym.environments.tools.dialect import Dialect, NativeTools, TextTools
from training_gym.environments.tools.mcp import McpServer
from training_gym.environments.tools.tool import Tool, answer, function_tool
from training_gym.rewards.graders.submission import leave
from training_gym.spec.code import CodeRef
from training_gym.spec.environment import Context, Policy
from training_gym.spec.episodes import Outcome
from training_gym.spec.errors import SpecError, did_you_mean
from training_gym.spec.sandboxes import Sandbox, SandboxSpec
from training_gym.spec.settings import Settings
from training_gym.spec.tasks import Task


class ToolEnvironment(Settings):
    """An agent with tools; what its last answer is worth, a reward says.

    Calls of one answer run side by side; their results come back in the order of the calls. A
    parameter called `ctx` is given the episode's context, one called `state` a dictionary that
    lives as long as the episode, one called `sandbox` the episode's sandbox.
    """

    tools: tuple[CodeRef, ...] = ()
    """Python functions with annotated parameters; their docstrings are what the model is told."""
    mcp: tuple[McpServer, ...] = ()
    """MCP servers whose tools are offered, too; each episode has a session of its own."""
    dialect: Literal["native", "text"] = "native"
    """`native`: as the model's template does it; `text`: described in the system message."""
    max_turns: int = Field(16, ge=1)
    """Answers after which the episode is truncated."""
    timeout_s: float = Field(30.0, gt=0)
    """Seconds one call may take, where `timeouts` does not name the tool."""
    timeouts: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Seconds by the tool's name."""
    max_result_chars: int = Field(8_000, ge=1)
    """A longer result is cut off, and the model is told how much is missing."""

    sandbox: SandboxSpec | None = None
    """The sandbox to work in; None: there is none. `tools.workbench` has tools for it."""
    provider: str = "local"
    """Who makes the sandboxes."""
    leaves: tuple[str, ...] = ()
    """Files and folders of the sandbox that are kept with the episode, for graders."""

    _dialects: dict[str, Dialect] = PrivateAttr({"native": NativeTools(), "text": TextTools()})

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """Answer calls until there are none."""
        if self.sandbox is None:
            return await self.work_in(None, task, policy, ctx)
        async with ctx.sandbox(self.sandbox, provider=self.provider) as sandbox:
            return await self.work_in(sandbox, task, policy, ctx)

    async def work_in(
        self, sandbox: Sandbox | None, task: Task, policy: Policy, ctx: Context
    ) -> Outcome:
        """The same in a sandbox that somebody else has and ends."""
        dialect = self._dialects[self.dialect]
        async with contextlib.AsyncExitStack() as stack:
            supplied: dict[str, Any] = {"ctx": ctx, "state": {}}
            if sandbox is not None:
                supplied["sandbox"] = sandbox
            tools = await self._open(stack, supplied)
            specs = [tool.spec for tool in tools.values()]
            messages = dialect.begin(opening(task), specs)
            used: Counter[str] = Counter()
            for _ in range(self.max_turns):
                reply, calls = await dialect.ask(policy, messages, specs)
                if not calls:
                    return Outcome()
                used.update(call.name for call in calls)
                answers = await asyncio.gather(
                    *(answer(call, tools, max_chars=self.max_result_chars) for call in calls)
                )
                ctx.keep({"tool_calls": dict(used), **await self._left(supplied)})
                messages = [*messages, reply, *dialect.results(answers)]
        return Outcome(status="truncated", reason=f"no answer after {self.max_turns} turns")

    async def _left(self, supplied: dict[str, Any]) -> dict[str, JsonValue]:
        """The files that are kept, as they are now: a limit may end the episode any time."""
        if not self.leaves or "sandbox" not in supplied:
            return {}
        return await leave(supplied["sandbox"], self.leaves)

    async def _open(
        self, stack: contextlib.AsyncExitStack, supplied: dict[str, Any]
    ) -> dict[str, Tool]:
        """Every tool by name, ready to be called."""
        found = []
        for code in self.tools:
            timeout_s = self.timeouts.get(code.name, self.timeout_s)
            found.append(function_tool(code.load(), supplied, timeout_s))
        for server in self.mcp:
            session = await stack.enter_async_context(server.session())
            for tool in await session.tools():
                timeout_s = self.timeouts.get(tool.name, self.timeout_s)
                found.append(Tool(tool, session.caller(tool.name), timeout_s))
        tools = {tool.spec.name: tool for tool in found}
        unknown = next((name for name in self.timeouts if name not in tools), None)
        if unknown is not None:
            raise SpecError(
                f"timeouts names a tool {unknown!r} that is not offered",
                fix=did_you_mean(unknown, tools),
            )
        if len(tools) < len(found):
            names = Counter(tool.spec.name for tool in found)
            twice = next(name for name, count in names.items() if count > 1)
            raise SpecError(f"two tools are called {twice!r}", fix="rename one, or leave it out")
        return tools
