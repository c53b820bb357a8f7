"""A clause of the contract: what it is, how it is tried, and what clauses are written with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from training_gym.spec.sandboxes import ExecRequest, SandboxProvider, SandboxSpec

Clause = Callable[[SandboxProvider, SandboxSpec], Awaitable[None]]


def try_clause(
    clause: Clause, make: Callable[[], SandboxProvider], spec: SandboxSpec | None = None
) -> None:
    """Run one clause with a new provider; raises `AssertionError` where it is broken."""

    async def run() -> None:
        provider = make()
        try:
            await clause(provider, spec or SandboxSpec())
        finally:
            await provider.close()

    asyncio.run(run())


def shell(script: str, **more: object) -> ExecRequest:
    """A request that runs a shell script."""
    return ExecRequest(argv=("sh", "-c", script), **more)


async def raises(kind: type[BaseException], awaitable: Awaitable[object]) -> BaseException:
    """The error, of that kind, that the awaitable ends with."""
    try:
        got = await awaitable
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} expected, got {got!r}")
