"""The seam between episodes and the isolated places their code runs in.

Three rules shape it. What a *command* does (its exit code, running out of time, output or memory)
is a result, never an exception. What the *infrastructure* does wrong is a typed error that says
whether to retry, whether to grade, and whether a reward computed from it would mean anything: an
infrastructure failure is missing, never zero. And every result carries the tier of isolation it was
obtained under, because tiers promise different things.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self, runtime_checkable

from training_gym.spec.errors import SandboxError
from training_gym.spec.sandbox_errors import (
    FAILURES,
    Cause,
    Disposition,
    ExecTimeout,
    Failure,
    OutOfMemory,
    OutputLimit,
    QuotaExceeded,
    RateLimited,
    Retry,
    SandboxDied,
    SandboxFileError,
    SandboxUnsupported,
    StartFailed,
    StartTimeout,
    disposition,
)
from training_gym.spec.sandbox_images import (
    DockerfileImage,
    FolderImage,
    HostImage,
    Image,
    OciImage,
    SnapshotImage,
)
from training_gym.spec.sandbox_values import (
    MIB,
    TIERS,
    ExecRequest,
    ExecResult,
    Guarantee,
    HostService,
    Mount,
    Network,
    Output,
    Resources,
    SandboxCapabilities,
    SandboxInfo,
    SandboxSpec,
    Snapshot,
    Stream,
    TierReport,
    unknown_tier,
)

__all__ = [
    "FAILURES",
    "MIB",
    "TIERS",
    "Cause",
    "Disposition",
    "DockerfileImage",
    "ExecRequest",
    "ExecResult",
    "ExecTimeout",
    "Failure",
    "FolderImage",
    "Guarantee",
    "HostImage",
    "HostService",
    "Image",
    "KnowsImages",
    "Mount",
    "Network",
    "OciImage",
    "OutOfMemory",
    "Output",
    "OutputLimit",
    "QuotaExceeded",
    "RateLimited",
    "Resources",
    "Retry",
    "Sandbox",
    "SandboxCapabilities",
    "SandboxDied",
    "SandboxError",
    "SandboxFileError",
    "SandboxInfo",
    "SandboxProcess",
    "SandboxProvider",
    "SandboxSpec",
    "SandboxUnsupported",
    "Snapshot",
    "SnapshotImage",
    "StartFailed",
    "StartTimeout",
    "Stream",
    "TierReport",
    "disposition",
    "unknown_tier",
]


class SandboxProcess(Protocol):
    """A command in the background."""

    def output(self) -> AsyncIterator[Output]:
        """What it writes from now on, to its end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send to its stdin; empty: close it."""
        ...

    async def wait(self) -> ExecResult:
        """Its end."""
        ...

    async def kill(self) -> ExecResult:
        """End it and everything it started."""
        ...


class Sandbox(Protocol):
    """One isolated place. Used by one owner, once: never returned to a pool.

    Commands run one after another; what should go on meanwhile is started in the background.
    Relative paths start at `workspace`. Every method raises `SandboxDied` if the sandbox is gone.
    """

    @property
    def id(self) -> str:
        """Unique within its provider."""
        ...

    @property
    def spec(self) -> SandboxSpec:
        """What it was created from."""
        ...

    @property
    def tier(self) -> str:
        """Its tier of isolation, a key of `TIERS`."""
        ...

    @property
    def workspace(self) -> str:
        """Absolute path inside of the folder where commands run and may write."""
        ...

    async def exec(self, request: ExecRequest) -> ExecResult:
        """Run a command to its end. Cancelling the call kills it."""
        ...

    def stream(self, request: ExecRequest) -> AsyncIterator[Output | ExecResult]:
        """Run a command; yields what it writes as it comes and, last, the result.

        The result's stdout and stderr are empty, since they were yielded.
        """
        ...

    async def start(self, request: ExecRequest) -> SandboxProcess:
        """Run a command in the background: it survives later commands, not its timeout."""
        ...

    async def read_file(self, path: str, *, max_bytes: int = 100 * MIB) -> bytes:
        """A regular file's content; raises `SandboxFileError`: absent, special, or too large."""
        ...

    def read_chunks(self, path: str, *, max_bytes: int = 1024 * MIB) -> AsyncIterator[bytes]:
        """The same in pieces of at most 1 MiB."""
        ...

    async def write_file(
        self, path: str, data: bytes | AsyncIterable[bytes], *, mode: int = 0o644
    ) -> None:
        """Write a file as the sandbox's user, folders above it included.

        Raises `SandboxFileError` where that user could not.
        """
        ...

    async def snapshot(self, kind: Literal["files", "memory"] = "files") -> Snapshot:
        """Freeze its state; create from `Snapshot.image`. Raises `SandboxUnsupported`."""
        ...

    async def fork(self, n: int = 1) -> Sequence[Sandbox]:
        """`n` new sandboxes with this one's files as they are now, and their changes apart."""
        ...

    async def connect(self, service: HostService) -> str:
        """Make one host service reachable; returns its `host:port` inside."""
        ...

    async def destroy(self) -> None:
        """End everything and free all it held; does nothing the second time."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class SandboxProvider(Protocol):
    """Makes sandboxes of one kind. Found by name in the entry-point group `training_gym.sandboxes`.

    Made without arguments; connects and starts what it needs at first use.
    """

    @property
    def name(self) -> str:
        """The name it is found by."""
        ...

    def capabilities(self) -> SandboxCapabilities:
        """What it can do."""
        ...

    async def probe(self) -> Sequence[TierReport]:
        """Which tiers it offers here, found out by trying."""
        ...

    async def create(self, spec: SandboxSpec, *, timeout_s: float = 60.0) -> Sandbox:
        """A sandbox ready for commands.

        Raises any of `RateLimited`, `QuotaExceeded`, `StartTimeout`, `StartFailed`,
        `SandboxUnsupported`. Cancelling the call leaves nothing behind.
        """
        ...

    async def list(self, tags: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Living sandboxes that carry all the tags."""
        ...

    async def destroy(self, sandbox_id: str) -> None:
        """End a sandbox by id, whoever made it; an unknown one is already gone."""
        ...

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Free a snapshot; sandboxes made from it live on."""
        ...

    async def close(self) -> None:
        """End all its sandboxes and free everything."""
        ...


@runtime_checkable
class KnowsImages(Protocol):
    """A provider that can tell which images are the same: stock is then kept by what they hold."""

    async def image_digest(self, image: Image) -> str:
        """Digest of the image's content; empty for one that has none. Raises as `create` does."""
        ...
