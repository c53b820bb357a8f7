"""What is asked of a sandbox and what comes back: values only."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from training_gym.spec.errors import did_you_mean
from training_gym.spec.sandbox_errors import FAILURES, REMEDIES, Failure, SandboxUnsupported
from training_gym.spec.sandbox_images import HostImage, Image, SnapshotImage
from training_gym.spec.settings import Settings

MIB = 1 << 20


class Resources(Settings):
    """What one sandbox may use. A tier that cannot enforce one of them says so in its report."""

    cpus: float = Field(1.0, gt=0)
    memory_mb: int = Field(512, gt=0)
    """Memory of all its processes together, MiB. Where files lie in memory, as in the local tiers,
    the limit is on both: `memory_mb + disk_mb`."""
    disk_mb: int = Field(256, gt=0)
    """What it may write, MiB."""
    files: int = Field(20_000, gt=0)
    """How many files it may create."""
    processes: int = Field(64, gt=0)
    """Processes and threads at once."""


class Network(Settings):
    """What a sandbox can reach. Whatever the mode, never the host's own services.

    A host service is opened to one sandbox by `Sandbox.connect`.
    """

    mode: Literal["none", "allowlist", "public"] = "none"
    """Nothing but its own loopback; the allowed hosts; every public address."""
    allowed_hosts: tuple[str, ...] = ()
    """Names (`pypi.org`), every name below one (`*.example.org`), or `name:port`."""

    @field_validator("allowed_hosts")
    @classmethod
    def _lower(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(host.lower() for host in hosts)


class Mount(Settings):
    """A folder or file of the host that the sandbox sees, read-only."""

    source: str
    """Absolute path on the host."""
    target: str
    """Absolute path in the sandbox."""


class SandboxSpec(Settings):
    """What to create: two equal specs, tags aside, give interchangeable sandboxes."""

    image: Image = HostImage()
    resources: Resources = Resources()
    network: Network = Network()
    mounts: tuple[Mount, ...] = ()
    env: dict[str, str] = {}
    """Environment of every command."""
    user: Literal["user", "root"] = "user"
    """Who commands run as: uid 1000 without privileges, or uid 0 that is root only inside."""
    tags: dict[str, str] = {}
    """Labels to find sandboxes by: run, lease, owner."""

    @property
    def key(self) -> str:
        """Digest of everything but the tags: sandboxes with one key can stand in for another."""
        return self.key_with("")

    def key_with(self, image_digest: str) -> str:
        """The same with the image's content, where it is known, in place of its name."""
        known = {"image"} if image_digest else set()
        text = self.model_dump_json(exclude={"tags", *known}) + image_digest
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class ExecRequest(Settings):
    """One command: a program with its arguments, or Python source."""

    argv: tuple[str, ...] = ()
    code: str = ""
    """Python source instead of a program: run in a warm interpreter with the standard library where
    the provider keeps one for the image (milliseconds), else by the image's `python3 -c`."""
    stdin: bytes = b""
    env: dict[str, str] = {}
    """Added to the sandbox's environment."""
    cwd: str = ""
    """Folder to run in; relative ones start at the sandbox's workspace, which is the default."""
    user: str = ""
    """Who to run as; empty: the sandbox's user. A provider refuses one it cannot become."""
    timeout_s: float = Field(60.0, gt=0)
    """Wall-clock seconds until everything the command started is killed."""
    max_output_bytes: int = Field(10 * MIB, gt=0)
    """Kept of stdout and of stderr, each; more is counted and dropped."""
    kill_output_bytes: int = Field(64 * MIB, gt=0)
    """Written in all before the command is killed: failure `output_limit`."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if bool(self.argv) == bool(self.code):
            raise ValueError("exactly one of argv and code is needed")
        return self


Stream = Literal["stdout", "stderr"]


class _Bytes(Settings):
    """A value with raw bytes: base64 in JSON."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class Output(_Bytes):
    """Something a running command wrote."""

    stream: Stream
    data: bytes


class ExecResult(_Bytes):
    """How a command ended. Nothing it started is alive afterwards."""

    exit_code: int
    """Its exit status; minus the signal's number if a signal ended it."""
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_bytes: int = 0
    """Written in all, kept or not."""
    stderr_bytes: int = 0
    failure: Failure | None = None
    """Why it was killed, where it was."""
    duration_s: float = 0.0
    cpu_s: float | None = None
    peak_memory_mb: float | None = None
    leftovers: int = 0
    """Processes it left behind, killed."""
    clean: bool = True
    """False: something could not be ended; the sandbox must not be used again."""
    tier: str
    """The tier of isolation it ran under, a key of `TIERS`."""

    @property
    def ok(self) -> bool:
        """Whether it exited with 0 by itself."""
        return self.exit_code == 0 and self.failure is None

    @property
    def text(self) -> str:
        """Kept stdout, undecodable bytes replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """Kept stderr, undecodable bytes replaced."""
        return self.stderr.decode("utf-8", "replace")

    def raise_for_failure(self) -> Self:
        """Itself, or the typed error of its failure; an exit code alone is no failure."""
        if self.failure is not None:
            raise FAILURES[self.failure](
                f"the command was ended after {self.duration_s:.1f} s: {self.failure}",
                fix=REMEDIES[self.failure],
            )
        return self


Guarantee = Literal[
    "files",  # no file of the host is readable or writable beyond the image and the mounts
    "processes",  # no process outside can be seen, traced or signalled
    "network",  # nothing reachable but what the spec grants
    "syscalls",  # dangerous system calls are refused
    "memory",  # the memory limit holds for all processes together
    "cpu",  # the CPU limit holds for all processes together
    "disk",  # limits on bytes and files hold
    "process_count",  # a fork bomb ends at the limit
    "leftovers",  # nothing a command started outlives it
    "owner_death",  # nothing outlives a killed owner
    "kernel",  # not the host's kernel: for hostile code
]

TIERS: Mapping[str, str] = {
    "remote": "a provider's machine",
    "A": "namespaces made by root: own users, processes, mounts, network; seccomp; cgroups",
    "B": "the same made by an ordinary user; limits by rlimits and a watchdog",
    "B2": "the same made inside a container; /proc may be empty",
    "C": "no namespaces: Landlock, seccomp and rlimits under the host's own tree",
    "D": "macOS Seatbelt: for development",
    "bubblewrap": "namespaces made by bwrap, with our seccomp filter",
    "container": "a container of Docker or Podman, with its default profile and our limits",
    "fake": "nothing runs: for tests",
}
"""What each tier is."""


class TierReport(Settings):
    """Whether a tier works here, and what it is worth."""

    tier: str
    provider: str
    """Name to give to `training-gym sandbox run --provider`."""
    works: bool
    guarantees: tuple[Guarantee, ...] = ()
    """What it keeps here: tested attacks fail."""
    limits: tuple[str, ...] = ()
    """What it does not keep, in words."""
    reason: str = ""
    """Why it does not work, where it does not."""
    fix: str = ""


class SandboxCapabilities(Settings):
    """What a provider can do."""

    snapshots: tuple[Literal["files", "memory"], ...] = ()
    images: tuple[Literal["host", "folder", "oci", "dockerfile", "snapshot"], ...] = ("host",)
    networks: tuple[Literal["none", "allowlist", "public"], ...] = ("none",)
    connect: bool = False
    """Whether `Sandbox.connect` works."""
    background: bool = False
    """Whether `Sandbox.start` works."""
    users: tuple[str, ...] = ("user",)
    remote: bool = False
    max_concurrent: int | None = None
    creates_per_s: float | None = None
    """Documented limit on the rate of creation; None: none known."""


def unknown_tier(name: str) -> SandboxUnsupported:
    """The error for a tier that does not exist."""
    return SandboxUnsupported(f"no tier is called {name!r}", fix=did_you_mean(name, TIERS))


class HostService(Settings):
    """One service of the host, and nothing else."""

    name: str
    address: str
    """`host:port`, or `unix:/path/of/socket`."""


class Snapshot(Settings):
    """A frozen state of a sandbox, kept by its provider until deleted."""

    id: str
    provider: str
    kind: Literal["files", "memory"] = "files"
    size_bytes: int = 0

    @property
    def image(self) -> SnapshotImage:
        """What to put into a `SandboxSpec` for a sandbox that starts from it."""
        return SnapshotImage(id=self.id)


class SandboxInfo(Settings):
    """A sandbox that a provider knows of, whoever made it."""

    id: str
    tags: dict[str, str] = {}
    created_at: float
    """Seconds since the epoch."""
    tier: str
