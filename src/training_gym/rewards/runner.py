"""Judging groups of episodes: one call each to killable workers, or in the caller's loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from training_gym.rewards.composition import combine
from training_gym.rewards.functions import RewardFunction, extend_path, load_function
from training_gym.rewards.in_loop import call_in_loop
from training_gym.rewards.judgement import Judgement, attributed, failed, from_json
from training_gym.rewards.process import Answer, CallTimeout, RewardProcess, WorkerDied
from training_gym.rewards.view import episode_json
from training_gym.spec.code import Code
from training_gym.spec.episodes import Episode
from training_gym.spec.recipe import IMPORT_TIMEOUT_S
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
        import_timeout_s: float = IMPORT_TIMEOUT_S,
        source_root: Path | str | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            reward: What judges.
            timeout_s: Seconds one call may take.
            workers: Processes for synchronous functions.
            import_timeout_s: Seconds that each may take to start and import the reward.
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
        self._processes = [
            RewardProcess(self._hello(), say, import_timeout_s=import_timeout_s)
            for _ in range(workers)
        ]
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

    @property
    def import_s(self) -> float:
        """The longest that a worker took to start and import the reward."""
        return max(process.import_s for process in self._processes)

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
        calls = [texts] if self._is_group[index] else [[text] for text in texts]
        function = self._functions[index]
        if function is not None:
            answers = await asyncio.gather(
                *(call_in_loop(function, call, self._timeout_s) for call in calls)
            )
        else:
            answers = await self._call_workers(index, calls)
        judgements = [judgement for answer in answers for judgement in answer]
        name = self._parts[index].name
        return [
            attributed(judgement, name, episode)
            for judgement, episode in zip(judgements, episodes, strict=True)
        ]

    async def _call_workers(
        self, index: int, calls: Sequence[Sequence[str]]
    ) -> list[list[Judgement]]:
        """A lone worker gets all calls at once; of several, whichever is free takes the next."""
        payloads = [
            f'{{"part": {index}, "episodes": [{", ".join(texts)}]}}'.encode() for texts in calls
        ]
        alone = len(self._processes) == 1
        shares = [payloads] if alone else [[payload] for payload in payloads]
        found = await asyncio.gather(*(self._call_worker(share) for share in shares))
        answers = [answer for share in found for answer in share]
        return [
            self._judged(answer, len(texts)) for answer, texts in zip(answers, calls, strict=True)
        ]

    def _judged(self, answer: Answer, count: int) -> list[Judgement]:
        """An answer as judgements of `count` episodes."""
        match answer:
            case CallTimeout():
                reason = f"took longer than {self._timeout_s:g} s and was killed"
                return [failed("timeout", reason)] * count
            case WorkerDied():
                return [failed("died", str(answer))] * count
        return from_json(answer)

    async def _call_worker(self, payloads: Sequence[bytes]) -> list[Answer]:
        process = await self._idle.get()
        loop, given_up = asyncio.get_running_loop(), threading.Event()
        call = loop.run_in_executor(
            self._threads, process.call_each, payloads, self._timeout_s, given_up
        )
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            # Nobody waits for the answers any more: end the call, so that its thread is free.
            given_up.set()
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
