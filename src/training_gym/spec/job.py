"""What a platform runs. Knows nothing of reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from pydantic import Field

from training_gym.spec.plan import Machine
from training_gym.spec.settings import Settings

ControlKind = Literal["stop", "stop_now", "checkpoint", "pause", "unpause"]


class NodeGroup(Settings):
    """Nodes that run the same command."""

    name: str = "main"
    count: int = Field(1, ge=1)
    accelerators: int = Field(0, ge=0)
    """Per node."""
    command: tuple[str, ...]
    """Arguments; `{python}` is the node's interpreter, `{run}` the run directory there."""
    image: str | None = None


class Tap(Settings):
    """How one of the engine's own outputs becomes our records."""

    source: Literal["stdout", "stderr", "file"]
    path: str | None = None
    """For `file`: path below the run directory."""
    stream: str = "logs"


class Job(Settings):
    """Node groups, commands, files, environment."""

    run_id: str
    attempt: int = Field(ge=1)
    groups: tuple[NodeGroup, ...] = Field(min_length=1)
    env: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    """Names of environment variables to hand on; values are never written."""
    source_sha256: str | None = None
    """Hash of the archive `source.tar.gz` in the run directory."""
    taps: tuple[Tap, ...] = ()
    signals: dict[ControlKind, str] = {}
    """Signal the engine's process understands for each request, such as `SIGINT`."""
    stop_grace_s: float = 600
    """Seconds a stopped engine has to finish its step before it is killed."""
    max_restarts: int = Field(0, ge=0)
    leaves_summary: bool = False
    """The engine writes `summary.json` when it has come to its end: without one it has not, even if
    its process ends with exit code 0."""
    records: Literal["shared_path", "pull", "volume", "http"] = "shared_path"


class JobRef(Settings):
    """What a platform answered to a submission; enough to find the job again."""

    platform: str
    key: str
    """The launcher's own name for the submission; submitting it twice is one job."""
    native_id: str
    """The platform's name for the job."""
    detail: dict[str, str] = {}


JobStatus = Literal["queued", "running", "succeeded", "failed", "cancelled", "lost"]


class JobState(Settings):
    """What a platform says of a job."""

    status: JobStatus
    exit_code: int | None = None
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether the job will not run any more."""
        return self.status not in ("queued", "running")


class LogChunk(Settings):
    """Log text after a cursor."""

    text: str
    cursor: str
    """Where to go on."""


class Capabilities(Settings):
    """What a platform can do."""

    max_nodes: int | None
    accelerators: bool
    detached: bool
    """The job outlives the launcher."""
    images: bool
    records: tuple[Literal["shared_path", "pull", "volume", "http"], ...]


class Platform(Protocol):
    """Runs one job somewhere. Every call survives the death of the launcher before it."""

    name: str

    def capabilities(self) -> Capabilities:
        """What this platform can do."""
        ...

    async def probe(self) -> Machine:
        """Facts of the machine, or of one node, a job would run on."""
        ...

    def render(self, job: Job) -> Mapping[str, str]:
        """Path to text of every file the submission consists of, for `--dry-run` and review."""
        ...

    async def submit(self, job: Job, key: str) -> JobRef:
        """Start the job; the same key again returns the first submission's answer."""
        ...

    async def find(self, key: str) -> JobRef | None:
        """The submission with this key, if there was one."""
        ...

    async def state(self, ref: JobRef) -> JobState:
        """What became of it."""
        ...

    async def logs(self, ref: JobRef, cursor: str = "") -> LogChunk:
        """What was logged after `cursor`."""
        ...

    async def fetch(self, ref: JobRef, path: str) -> bytes:
        """A file below the run directory."""
        ...

    async def cancel(self, ref: JobRef) -> None:
        """End the job and everything it started."""
        ...
