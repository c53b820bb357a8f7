"""MCP servers as tools, through the official `mcp` package."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pydantic import Field, model_validator

from training_gym.environments.tools.tool import Mistake
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.messages import ToolSpec
from training_gym.spec.settings import Settings

_ALIVE_S = 5.0
"""Until a server that does not answer after a failed call counts as dead."""


class McpServer(Settings):
    """A server that is started for each episode, or one that listens at an address."""

    command: tuple[str, ...] = ()
    """Program and arguments; it is spoken to over its stdin and stdout."""
    env: dict[str, str] = {}
    """Added to the few variables that such a server is given (PATH, HOME and the like)."""
    env_from: tuple[str, ...] = ()
    """Names of variables handed on from our environment: for secrets, whose values stay there."""
    url: str = ""
    """Address of a server that speaks streamable HTTP, instead of `command`."""
    include: tuple[str, ...] | None = None
    """Names of the tools to offer; None: all."""
    start_timeout_s: float = Field(30.0, gt=0)
    """Seconds until a server that does not answer has failed."""

    @model_validator(mode="after")
    def _one_of(self) -> McpServer:
        if bool(self.command) == bool(self.url):
            raise ValueError("exactly one of command and url is needed")
        return self

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[McpSession]:
        """A session, ended on leaving; raises `EnvironmentFailure` where none can be had."""
        client = _client(self)
        try:
            async with asyncio.timeout(self.start_timeout_s):
                opened = await client.__aenter__()
        except Exception as error:  # boundary: a server fails in whatever way its transport does
            raise EnvironmentFailure(
                f"the MCP server {self.url or self.command[0]!r} did not answer: {_words(error)}",
                fix="start it by hand with the same command, and see what it says",
            ) from error
        try:
            yield McpSession(opened, self.include, self.url or self.command[0])
        finally:
            # One that died has failed its call already; it cannot fail at being ended, too.
            with contextlib.suppress(Exception):
                await client.__aexit__(None, None, None)


class McpSession:
    """What one server offers."""

    def __init__(self, client: Any, include: tuple[str, ...] | None, name: str) -> None:
        """Made by `McpServer.session`; `name` is what its server is called in errors."""
        self._client = client
        self._name = name
        self._include = include

    async def tools(self) -> list[ToolSpec]:
        """The tools, every page of them."""
        found: list[Any] = []
        cursor = None
        while True:
            page = await self._client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        specs = [
            ToolSpec(name=t.name, description=t.description or "", parameters=dict(t.input_schema))
            for t in found
        ]
        if self._include is None:
            return specs
        missing = set(self._include) - {spec.name for spec in specs}
        if missing:
            raise EnvironmentFailure(
                f"the MCP server has no tool {sorted(missing)[0]!r}",
                fix="it has: " + ", ".join(sorted(spec.name for spec in specs)),
            )
        return [spec for spec in specs if spec.name in self._include]

    def caller(self, name: str) -> Callable[[dict[str, Any]], Awaitable[str]]:
        """What calls the tool of that name; raises `EnvironmentFailure` where the server died."""

        async def call(arguments: dict[str, Any]) -> str:
            try:
                result = await self._client.call_tool(name, arguments)
            except Exception as error:
                await self._check_alive(error)
                raise
            text = "\n".join(_content(part) for part in result.content)
            if result.is_error:
                raise Mistake(text)
            return text

        return call

    async def _check_alive(self, failed: Exception) -> None:
        """A server that answers at all refused the call, which is the model's affair."""
        try:
            async with asyncio.timeout(_ALIVE_S):
                await self._client.list_tools()
        except Exception as error:  # boundary: it is dead in whatever way its transport is
            raise EnvironmentFailure(
                f"the MCP server {self._name!r} died in a call: {_words(failed)}",
                fix="start it by hand, call that tool, and see what it says",
            ) from error


def _client(server: McpServer) -> Any:
    try:
        from mcp.client import Client
        from mcp.client.stdio import StdioServerParameters
    except ImportError as error:
        raise EnvironmentFailure(
            f"MCP servers need the package mcp: {error}", fix="pip install 'training-gym[mcp]'"
        ) from error
    if server.url:
        return Client(server.url)
    handed = {name: os.environ[name] for name in server.env_from if name in os.environ}
    program, *arguments = server.command
    env = {**server.env, **handed}
    return Client(StdioServerParameters(command=program, args=arguments, env=env))


def _content(part: Any) -> str:
    """A part of a result as text; what is none is named."""
    if part.type == "text":
        return str(part.text)
    if part.type == "resource" and getattr(part.resource, "text", None) is not None:
        return str(part.resource.text)
    return f"[{part.type}]"


def _words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".strip()
