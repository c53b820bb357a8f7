"""A process that samples and trains beside the leading one, and does what that one asks.

Started by `ranks.Rank`. It loads the same plan and the same checkpoint, joins the process group and
answers calls until the leader is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.core import Core, Origin, load_core
from training_gym.engines.local.parallel.group import join
from training_gym.engines.local.parallel.ranks import LEADER_FD, RANK, Answer, Call
from training_gym.engines.local.preparation import prepare_torch
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.spec.engine import TrainingBatch
from training_gym.spec.sampling import Completion, Prompt, SampleKey, Sampling


class Follower:
    """Answers the leader's calls, whatever they ask."""

    def __init__(self, rank: int) -> None:
        """Nothing is loaded before the call `load`."""
        self._rank = rank
        self._compute = Compute()
        self._sessions: dict[str, contextlib.AbstractAsyncContextManager[None]] = {}
        self._drawing: dict[int, asyncio.Task[Completion]] = {}
        self._core: Core
        self._sampler: LocalSampler
        self._trainer: LocalTrainer

    async def answer(self, call: Call) -> Any:
        """What the call asks for; raises what goes wrong."""
        own: dict[str, Callable[..., Awaitable[Any]]] = {
            "load": self._load,
            "join": self._join,
            "enter": self._enter,
            "leave": self._leave,
            "generate": self._generate,
            "cancel": self._cancel,
            "step": self._step,
        }
        if call.name in own:
            return await own[call.name](*call.given)
        if call.name in ("update_weights", "forget"):
            return await getattr(self._sampler, call.name)(*call.given)
        return await self._compute.run(getattr(self._trainer, call.name), *call.given)

    async def _load(self, origin: Origin) -> None:
        await self._compute.run(prepare_torch, origin.plan)
        self._core = await self._compute.run(load_core, origin, rank=self._rank)
        self._sampler = self._core.sampler(self._compute)

    async def _join(self, meeting_point: Path) -> None:
        engine = self._core.origin.plan.run.recipe.engine
        await self._compute.run(join, engine, self._rank, meeting_point)
        self._trainer = await self._compute.run(self._core.trainer)

    async def _step(self, batch: TrainingBatch) -> None:
        await self._compute.run(self._updated, batch)

    def _updated(self, batch: TrainingBatch) -> None:
        """On the compute thread: no token is drawn from new weights under the old number."""
        self._trainer.step(batch)
        self._sampler.take_up(self._sampler.version + 1)

    async def _enter(self, session: str) -> None:
        self._sessions[session] = self._sampler.presence(session)
        await self._sessions[session].__aenter__()

    async def _leave(self, session: str) -> None:
        await self._sessions.pop(session).__aexit__(None, None, None)

    async def _generate(
        self,
        number: int,
        prompt: Prompt,
        sampling: Sampling,
        key: SampleKey,
        session: str | None,
        adapter: str | None,
    ) -> tuple[Completion, int]:
        """The completion, and how many tokens this process has prefilled so far."""
        task = asyncio.ensure_future(
            self._sampler.generate(prompt, sampling, key, session=session, adapter=adapter)
        )
        self._drawing[number] = task
        try:
            return await task, self._sampler.statistics.prefilled_tokens
        finally:
            del self._drawing[number]

    async def _cancel(self, number: int) -> None:
        if number in self._drawing:
            self._drawing[number].cancel()


async def serve(connection: Connection, follower: Follower) -> None:
    """Answer calls until the leader says farewell; without it the process ends where it stands."""
    loop = asyncio.get_running_loop()
    heard: asyncio.Queue[Sequence[Call]] = asyncio.Queue()
    threading.Thread(target=_listen, args=(connection, loop, heard), daemon=True).start()
    working: set[asyncio.Task[None]] = set()
    while calls := await heard.get():
        for call in calls:
            task = asyncio.create_task(_answer(connection, follower, call))
            working.add(task)
            task.add_done_callback(working.discard)


async def _answer(connection: Connection, follower: Follower, call: Call) -> None:
    try:
        answer = Answer(call.number, await follower.answer(call), None)
    except asyncio.CancelledError:
        answer = Answer(call.number, None, None)  # the leader has cancelled it, and waits no more
    except Exception as error:  # noqa: BLE001 - boundary: the leader owns the failure
        answer = Answer(call.number, None, error)
    connection.send(answer)


def _listen(
    connection: Connection,
    loop: asyncio.AbstractEventLoop,
    heard: asyncio.Queue[Sequence[Call]],
) -> None:
    while True:
        try:
            calls: Sequence[Call] = connection.recv()
        except (EOFError, OSError):
            os._exit(1)  # the leader is gone; the compute thread may wait for it without end
        loop.call_soon_threadsafe(heard.put_nowait, calls)


def _end_with_the_leader() -> None:
    """On Linux the kernel ends this process when its parent ends, even while it is computing."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def main() -> None:
    """Serve the leader whose socket the environment names."""
    connection = Connection(int(os.environ[LEADER_FD]))
    _end_with_the_leader()
    for number in (signal.SIGINT, signal.SIGTSTP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # what is asked of a run is asked of the leader
    asyncio.run(serve(connection, Follower(int(os.environ[RANK]))))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the compute thread's libraries may hold threads that never end


if __name__ == "__main__":
    main()
