"""`FakeProvider`: sandboxes only in memory, with latency, failures and quotas at will."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from training_gym.spec.sandboxes import (
    ExecRequest,
    ExecResult,
    QuotaExceeded,
    RateLimited,
    SandboxCapabilities,
    SandboxError,
    SandboxInfo,
    SandboxSpec,
    SnapshotImage,
    StartFailed,
    StartTimeout,
    TierReport,
)
from training_gym.testing.fake_sandbox import FakeSandbox

Commands = Callable[[FakeSandbox, ExecRequest], Awaitable[ExecResult]]


async def succeed(sandbox: FakeSandbox, request: ExecRequest) -> ExecResult:
    """Every command exits with 0 and echoes its stdin."""
    return ExecResult(
        exit_code=0, stdout=request.stdin, stdout_bytes=len(request.stdin), tier=sandbox.tier
    )


class FakeProvider:
    """A provider for tests of pools, graders and environments: no process is ever started."""

    name = "fake"

    def __init__(
        self,
        *,
        start_s: float | Callable[[], float] = 0.0,
        failures: Iterable[SandboxError | None] = (),
        max_concurrent: int | None = None,
        creates_per_s: float | None = None,
        commands: Commands = succeed,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """What to imitate.

        Args:
            start_s: Seconds a creation takes, or a function drawing them.
            failures: For each creation in order the error it ends with, or None; then none.
            max_concurrent: More at once raise `QuotaExceeded`; those being started count.
            creates_per_s: More within a second raise `RateLimited`.
            commands: What a command does.
            sleep: Instead of `asyncio.sleep`.
            clock: Seconds, for the rate limit.
        """
        self._start_s = start_s if callable(start_s) else lambda: start_s
        self._failures = iter(failures)
        self._max_concurrent = max_concurrent
        self._creates_per_s = creates_per_s
        self.commands = commands
        self._sleep = sleep
        self._clock = clock
        self._numbers = itertools.count(1)
        self._recent: list[float] = []
        self.starting = 0
        """Creations under way."""
        self.created = 0
        """Creations that succeeded, ever."""
        self.alive: dict[str, FakeSandbox] = {}
        """By id."""
        self.snapshots: dict[str, dict[str, bytes]] = {}
        """Files by snapshot."""

    def capabilities(self) -> SandboxCapabilities:
        """Everything the memory allows."""
        return SandboxCapabilities(
            snapshots=("files",),
            images=("host", "folder", "oci", "dockerfile", "snapshot"),
            networks=("none", "allowlist", "public"),
            connect=True,
            users=("user", "root"),
            max_concurrent=self._max_concurrent,
            creates_per_s=self._creates_per_s,
        )

    async def probe(self) -> Sequence[TierReport]:
        """It works, and promises nothing."""
        return [
            TierReport(tier="fake", provider=self.name, works=True, limits=("nothing runs in it",))
        ]

    async def create(self, spec: SandboxSpec, *, timeout_s: float = 60.0) -> FakeSandbox:
        """One more, or the failure that is due."""
        self._admit()
        self.starting += 1
        try:
            start_s = self._start_s()
            await self._sleep(min(start_s, timeout_s))
            if start_s > timeout_s:
                raise StartTimeout(
                    f"not ready after {timeout_s} s, it takes {start_s} s", fix="try again"
                )
            failure = next(self._failures, None)
            if failure is not None:
                raise failure
            files = self._files_of(spec)
        finally:
            self.starting -= 1
        sandbox = FakeSandbox(self, f"fake-{next(self._numbers)}", spec, files)
        self.alive[sandbox.id] = sandbox
        self.created += 1
        return sandbox

    async def list(self, tags: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Those alive that carry the tags."""
        wanted = dict(tags or {}).items()
        return [s.info for s in self.alive.values() if wanted <= s.spec.tags.items()]

    async def destroy(self, sandbox_id: str) -> None:
        """End one by id."""
        if sandbox_id in self.alive:
            await self.alive[sandbox_id].destroy()

    def keep(self, files: Mapping[str, bytes]) -> str:
        """A snapshot of these files, by its id."""
        snapshot_id = f"fake-snapshot-{next(self._numbers)}"
        self.snapshots[snapshot_id] = dict(files)
        return snapshot_id

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Forget a snapshot."""
        self.snapshots.pop(snapshot_id, None)

    async def close(self) -> None:
        """End all."""
        self.alive.clear()
        self.snapshots.clear()

    def _admit(self) -> None:
        held = len(self.alive) + self.starting
        if self._max_concurrent is not None and held >= self._max_concurrent:
            raise QuotaExceeded(
                f"{held} sandboxes are held, {self._max_concurrent} allowed", fix="destroy some"
            )
        if self._creates_per_s is None:
            return
        now = self._clock()
        self._recent = [at for at in self._recent if at > now - 1]
        if len(self._recent) >= self._creates_per_s:
            raise RateLimited(
                f"more than {self._creates_per_s:g} creations in a second",
                fix="wait",
                retry_after_s=self._recent[0] + 1 - now,
            )
        self._recent.append(now)

    def _files_of(self, spec: SandboxSpec) -> dict[str, bytes]:
        if not isinstance(spec.image, SnapshotImage):
            return {}
        if spec.image.id not in self.snapshots:
            raise StartFailed(f"there is no snapshot {spec.image.id!r}", fix="take one first")
        return dict(self.snapshots[spec.image.id])
