"""Asynchronous rewards: called in the caller's loop, with a timeout."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

from training_gym.rewards.faults import describe_error
from training_gym.rewards.functions import RewardFunction
from training_gym.rewards.judgement import Judgement, failed
from training_gym.rewards.returned import read_group, read_returned
from training_gym.rewards.view import read_episode

GRACE_S = 1.0
"""Seconds a cancelled reward has to clean up before it is left behind."""


async def call_in_loop(
    function: RewardFunction, episodes: Sequence[str], timeout_s: float
) -> list[Judgement]:
    """One judgement an episode (given as JSON), from one call.

    A reward that blocks the loop cannot be stopped; write such a one as a plain function.
    """
    given = [read_episode(json.loads(text)) for text in episodes]
    argument: Any = given if function.is_group else given[0]
    task: asyncio.Future[Any] = asyncio.ensure_future(_called(function, argument))
    try:
        await asyncio.wait({task}, timeout=timeout_s)
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(_forget)
    if not task.done():
        await asyncio.wait({task}, timeout=GRACE_S)
        return [failed("timeout", f"took longer than {timeout_s:g} s and was cancelled")] * len(
            given
        )
    try:
        value = task.result()
    # The boundary to the user's code.
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001
        raised = error.__cause__ if isinstance(error, _Quit) and error.__cause__ else error
        return [failed("raised", f"raised {describe_error(raised)}")] * len(given)
    return read_group(value, len(given)) if function.is_group else [read_returned(value)]


class _Quit(Exception):
    """The reward called `sys.exit`, which in a task would end the loop and all that runs in it."""


async def _called(function: RewardFunction, argument: Any) -> Any:
    process = os.getpid()
    try:
        return await function.call(argument)
    except SystemExit as error:
        raise _Quit from error
    finally:
        if os.getpid() != process:  # a copy that the reward has forked: it must not train as well
            os._exit(0)


def _forget(task: asyncio.Future[Any]) -> None:
    """Take note of how a cancelled reward ended, so that asyncio does not warn of it."""
    if not task.cancelled():
        task.exception()
