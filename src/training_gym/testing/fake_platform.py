"""`FakePlatform`: jobs that only exist in memory and do what a test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from training_gym.spec.errors import PlatformError
from training_gym.spec.job import Capabilities, Job, JobRef, JobState, JobStatus, LogChunk
from training_gym.spec.plan import Machine


@dataclass
class FakeJob:
    """One submission and what became of it."""

    job: Job
    ref: JobRef
    state: JobState = field(default_factory=lambda: JobState(status="queued"))
    log: str = ""
    files: dict[str, bytes] = field(default_factory=dict)


class FakePlatform:
    """A platform for tests of launchers: nothing runs, `become` says what would have happened."""

    name = "fake"

    def __init__(self, machine: Machine | None = None) -> None:
        """`machine` is what `probe` finds."""
        self._machine = machine or Machine(cpu_cores=4, memory_gib=16)
        self.jobs: dict[str, FakeJob] = {}
        """By key."""

    def become(
        self, key: str, status: JobStatus, *, exit_code: int | None = None, log: str = ""
    ) -> None:
        """Let a job have another state and say something more."""
        job = self.jobs[key]
        job.state = JobState(status=status, exit_code=exit_code)
        job.log += log

    def capabilities(self) -> Capabilities:
        """Everything."""
        return Capabilities(
            max_nodes=None,
            accelerators=True,
            detached=True,
            images=True,
            records=("shared_path", "pull", "volume", "http"),
        )

    async def probe(self) -> Machine:
        """The machine it was made with."""
        return self._machine

    def render(self, job: Job) -> Mapping[str, str]:
        """The job's description."""
        return {f"attempts/{job.attempt}/job.json": job.model_dump_json(indent=2) + "\n"}

    async def submit(self, job: Job, key: str) -> JobRef:
        """Queue the job."""
        if key not in self.jobs:
            ref = JobRef(platform=self.name, key=key, native_id=str(len(self.jobs) + 1))
            self.jobs[key] = FakeJob(job, ref)
        return self.jobs[key].ref

    async def find(self, key: str) -> JobRef | None:
        """The submission with this key."""
        known = self.jobs.get(key)
        return None if known is None else known.ref

    async def state(self, ref: JobRef) -> JobState:
        """What the test said last."""
        return self._job(ref).state

    async def logs(self, ref: JobRef, cursor: str = "") -> LogChunk:
        """What the test said after the cursor."""
        log = self._job(ref).log
        return LogChunk(text=log[int(cursor or 0) :], cursor=str(len(log)))

    async def fetch(self, ref: JobRef, path: str) -> bytes:
        """A file that the test put there."""
        files = self._job(ref).files
        if path not in files:
            raise PlatformError(f"the run has no file {path!r}", fix="check the path")
        return files[path]

    async def cancel(self, ref: JobRef) -> None:
        """End the job unless it has ended."""
        job = self._job(ref)
        if not job.state.ended:
            job.state = JobState(status="cancelled", reason="cancelled")

    def _job(self, ref: JobRef) -> FakeJob:
        if ref.key not in self.jobs:
            raise PlatformError(
                f"no job was submitted as {ref.key!r}", fix="use the reference of a submission"
            )
        return self.jobs[ref.key]
