"""Puts sheets to a policy: remembered, tried again, within a budget, None where nothing came."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from training_gym.rewards.judges.sheet import Sheet, read_grades
from training_gym.spec.environment import Policy
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.sampling import Sampling

Grades = dict[str, dict[str, float]]


class Memory(Protocol):
    """What was answered before, by the sheet's digest."""

    def get(self, key: str) -> Grades | None:
        """The grades of that sheet."""
        ...

    def put(self, key: str, grades: Grades) -> None:
        """Remember them."""
        ...


class FolderMemory:
    """One file for each sheet, written whole; shared by all processes of a home."""

    def __init__(self, folder: Path) -> None:
        """Below `folder`, which is made when the first file is."""
        self._folder = folder

    def get(self, key: str) -> Grades | None:
        """See `Memory`; a damaged file is as good as none."""
        try:
            found: Grades = json.loads(self._file(key).read_text())
        except (OSError, ValueError):
            return None
        return found

    def put(self, key: str, grades: Grades) -> None:
        """See `Memory`."""
        file = self._file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(json.dumps(grades))
        draft.replace(file)

    def _file(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key[2:]}.json"


class Asker:
    """Asks one policy."""

    def __init__(
        self,
        policy: Policy,
        memory: Memory | None,
        *,
        name: str,
        attempts: int,
        max_requests: int | None,
        max_tokens: int,
        concurrency: int,
    ) -> None:
        """`name` tells models apart in the memory; `max_requests` is the budget."""
        self._policy = policy
        self._memory = memory
        self._name = name
        self._attempts = attempts
        self._left = max_requests
        self._sampling = Sampling(temperature=0.0, max_tokens=max_tokens)
        self._room = asyncio.Semaphore(concurrency)
        self._under_way: dict[str, asyncio.Task[Grades | None]] = {}
        self.requests = 0
        """Sent so far."""
        self.unreadable = 0
        """Replies that were no grades."""
        self.unreachable = 0
        """Sheets for which nobody answered."""

    async def grades(self, sheet: Sheet, criteria: Sequence[str], top: int) -> Grades | None:
        """The grades by label; equal sheets at the same time are asked once."""
        key = f"{self._name}-{sheet.key}".replace("/", "_")
        known = self._memory.get(key) if self._memory is not None else None
        if known is not None:
            return known
        if key not in self._under_way:
            task = asyncio.create_task(self._ask(key, sheet, criteria, top))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(self._under_way[key])

    async def _ask(
        self, key: str, sheet: Sheet, criteria: Sequence[str], top: int
    ) -> Grades | None:
        labels = [*sheet.labels, *([sheet.canary] if sheet.canary else [])]
        for attempt in range(self._attempts):
            async with self._room:
                if self._left is not None and self._left <= 0:
                    return None
                text = await self._answer(sheet, attempt)
            if text is None:
                return None
            grades = read_grades(text, labels, criteria, top)
            if grades is not None:
                if self._memory is not None:
                    self._memory.put(key, grades)
                return grades
            self.unreadable += 1
        return None

    async def _answer(self, sheet: Sheet, attempt: int) -> str | None:
        """One reply; None where there is nobody to give one."""
        if self._left is not None:
            self._left -= 1
        self.requests += 1
        # Asked the same way, a greedy judge would only say the same again.
        warmth = {"temperature": 0.7} if attempt else {}
        try:
            reply = await self._policy.chat(
                sheet.messages, sampling=self._sampling.changed(**warmth)
            )
        except EnvironmentFailure:  # an endpoint has tried as often as it was told to
            self.unreachable += 1
            return None
        return reply.text
