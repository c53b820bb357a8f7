"""What the platform contract is tried on, and how its clauses look at a job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from training_gym.jobs.source import pack
from training_gym.records.documents import write_document
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.errors import PlatformError
from training_gym.spec.job import Job, JobRef, JobState, Platform
from training_gym.testing.fake_engine import tiny_job

T = TypeVar("T")

PATIENCE_S = 60.0
"""Longest wait for anything; passing takes a small part of it."""


@dataclass(frozen=True)
class Subject:
    """A platform under test, with what only its author knows how to do."""

    make: Callable[[Path], Platform]
    """A new platform object, as after a restart of the launcher, over a folder of runs."""
    kill: Callable[[JobRef], None]
    """End the job's runner as a power failure would: nothing of it may write another byte."""
    is_alive: Callable[[int], bool]
    """Whether the process with this id runs where the job ran."""


class Trial:
    """One run to submit, and its platform seen through ever new objects."""

    def __init__(self, subject: Subject, runs: Path, run_id: str = "trial") -> None:
        """Makes the run directory as a launcher does."""
        self.subject, self.runs = subject, runs
        manifest = Manifest(run_id=run_id, created_at=time.time(), run={"model": "none"})
        self.run = RunDirectory.create(runs / run_id, manifest)
        self.key = f"{run_id}-1"

    @property
    def platform(self) -> Platform:
        """Another object each time: whatever it knows lies outside of it."""
        return self.subject.make(self.runs)

    def job(self, *arguments: str, **fields: Any) -> Job:
        """A job of the tiny engine, its files written where the platform looks for them."""
        source, sha256 = pack({"user_module.py": b"ANSWER = 42\n"})
        self.run.source_archive.write_bytes(source)
        job = tiny_job(self.run.run_id, *arguments).changed(source_sha256=sha256, **fields)
        write_document(self.run.attempt(job.attempt) / "job.json", job)
        return job

    async def start(self, *arguments: str, **fields: Any) -> JobRef:
        """Submit a job of the tiny engine."""
        return await self.platform.submit(self.job(*arguments, **fields), self.key)

    async def end(self, ref: JobRef) -> JobState:
        """Its state once it has ended."""

        async def ended() -> JobState | None:
            state = await self.platform.state(ref)
            return state if state.ended else None

        return await eventually(ended, "the job to end")

    async def begun(self, ref: JobRef) -> list[int]:
        """Ids of the engine's processes once training has begun."""

        async def pids() -> list[int] | None:
            await self.document(ref, "tiny-state.json")
            found: list[int] = (await self.document(ref, "attempts/1/pids.json"))["pids"]
            return found

        return await eventually(pids, "training to begin")

    async def document(self, ref: JobRef, path: str) -> dict[str, Any]:
        """A JSON document of the run."""
        document: dict[str, Any] = json.loads(await self.platform.fetch(ref, path))
        return document

    async def log(self, ref: JobRef) -> str:
        """All that was logged, read chunk by chunk."""
        text, cursor = "", ""
        while chunk := await self.platform.logs(ref, cursor):
            if not chunk.text:
                break
            text, cursor = text + chunk.text, chunk.cursor
        return text

    async def all_gone(self, pids: list[int]) -> None:
        """Wait until none of these processes runs."""

        async def gone() -> bool:
            return not any(self.subject.is_alive(pid) for pid in pids)

        await eventually(gone, f"processes {pids} to be gone")


async def eventually(look: Callable[[], Awaitable[T | None]], what: str) -> T:
    """The first true answer; a file that is not there yet counts as none."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(PlatformError):
            answer = await look()
            if answer:
                return answer
        await asyncio.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE_S:.0f} s in vain for {what}")
