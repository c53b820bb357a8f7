"""Judging groups of episodes: one call each to killable workers, or in the caller's loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from training_gym.rewards.composition import combine
from training_gym.rewards.functions import RewardFunction, extend_path, load_function
from training_gym.rewards.in_loop import call_in_loop
from training_gym.rewards.judgement import Judgement, attributed, failed, from_json
from training_gym.rewards.process import CallTimeout, RewardProcess, WorkerDied
from training_gym.rewards.view import episode_json
from training_gym.spec.code import Code
from training_gym.spec.episodes import Episode
from training_gym.spec.rewards import RewardPart, WeightedReward


class RewardRunner:
    """Runs one reward, plain or composed, until closed.

    Synchronous functions run in `workers` processes, each call with a timeout after which its
    process is killed and replaced; asynchronous ones run in the caller's loop.
    """

    def __init__(
        self,
        reward: WeightedReward | Code,
        *,
        timeout_s: float,
        workers: int,
        source_root: Path | str | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            reward: What judges.
            timeout_s: Seconds one call may take.
            workers: Processes for synchronous functions.
            source_root: Folder from which the user's modules are imported.
            say: Receives each line a worker's code prints, from another thread; None: stderr.
        """
        self._is_composed = isinstance(reward, WeightedReward)
        self._parts = (
            reward.parts
            if isinstance(reward, WeightedReward)
            else (RewardPart(name=reward.name, reward=reward),)
        )
        self._timeout_s = timeout_s
        self._path = [str(Path(source_root).resolve()) if source_root else "", *sys.path]
        self._processes = [RewardProcess(self._hello(), say) for _ in range(workers)]
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="rewards")
        self._idle: asyncio.Queue[RewardProcess] = asyncio.Queue()
        self._functions: list[RewardFunction | None] = []
        self._is_group: list[bool] = []

    async def __aenter__(self) -> Self:
        """Start the workers and load the reward; raises `RewardError` if that fails."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the workers."""
        await self.close()

    async def judge(self, episodes: Sequence[Episode]) -> list[Judgement]:
        """One judgement for each episode of a group, in order."""
        if not episodes:
            return []
        texts = [episode_json(episode) for episode in episodes]
        columns = await asyncio.gather(
            *(self._judge_part(index, episodes, texts) for index in range(len(self._parts)))
        )
        if not self._is_composed:
            return columns[0]
        return [combine(self._parts, row) for row in zip(*columns, strict=True)]

    async def close(self) -> None:
        """Kill all workers and wait until they are gone; close rewards that hold something."""
        for process in self._processes:
            process.close()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        for process in self._processes:
            process.reap()
        for function in self._functions:
            if function is not None and hasattr(function.call, "aclose"):
                await function.call.aclose()

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        first, *others = self._processes
        await loop.run_in_executor(self._threads, first.start)
        self._is_group = [flags["is_group"] for flags in first.functions]
        is_async = [flags["is_async"] for flags in first.functions]
        if any(is_async):
            extend_path(self._path)
        self._functions = [
            load_function(part.reward, part.name) if in_loop else None
            for part, in_loop in zip(self._parts, is_async, strict=True)
        ]
        if all(is_async):
            first.close()
            return
        starts = (loop.run_in_executor(self._threads, other.start) for other in others)
        await asyncio.gather(*starts)
        for process in self._processes:
            self._idle.put_nowait(process)

    async def _judge_part(
        self, index: int, episodes: Sequence[Episode], texts: Sequence[str]
    ) -> list[Judgement]:
        batches = [texts] if self._is_group[index] else [[text] for text in texts]
        found = await asyncio.gather(*(self._call(index, batch) for batch in batches))
        judgements = [judgement for batch in found for judgement in batch]
        name = self._parts[index].name
        return [
            attributed(judgement, name, episode)
            for judgement, episode in zip(judgements, episodes, strict=True)
        ]

    async def _call(self, index: int, texts: Sequence[str]) -> list[Judgement]:
        function = self._functions[index]
        if function is not None:
            return await call_in_loop(function, texts, self._timeout_s)
        payload = f'{{"part": {index}, "episodes": [{", ".join(texts)}]}}'.encode()
        try:
            return from_json(await self._call_worker(payload))
        except CallTimeout:
            failure = failed("timeout", f"took longer than {self._timeout_s:g} s and was killed")
        except WorkerDied as error:
            failure = failed("died", str(error))
        return [failure] * len(texts)

    async def _call_worker(self, payload: bytes) -> list[dict[str, Any]]:
        process = await self._idle.get()
        loop = asyncio.get_running_loop()
        call = loop.run_in_executor(self._threads, process.call, payload, self._timeout_s)
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            # Nobody waits for the answer any more: end the call, so that its thread is free.
            process.kill()
            await asyncio.wait({call})
            call.exception()
            raise
        finally:
            self._idle.put_nowait(process)

    def _hello(self) -> dict[str, Any]:
        parts = [
            {"name": part.name, "ref": part.reward.ref, "kwargs": part.reward.kwargs}
            for part in self._parts
        ]
        return {"parts": parts, "path": self._path}
