"""What a remote provider must be able to do for the rest to be ours: a shell, files, an end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Protocol

from training_gym.spec.sandboxes import (
    QuotaExceeded,
    RateLimited,
    SandboxDied,
    SandboxError,
    SandboxSpec,
    SandboxUnsupported,
    StartTimeout,
)


@dataclass(frozen=True)
class ShellResult:
    """How a script ended. Its output is short and ASCII by construction."""

    exit_code: int
    output: str


class Machine(Protocol):
    """One remote sandbox as its provider's client sees it.

    Every method raises our typed errors only: `SandboxDied` if the sandbox is gone or silent.
    """

    @property
    def id(self) -> str:
        """The provider's id."""
        ...

    @property
    def root(self) -> bool:
        """Whether scripts run as root, so that commands of an ordinary user must step down."""
        ...

    async def run(self, script: str, *, timeout_s: float) -> ShellResult:
        """Run a script with the sandbox's `sh`."""
        ...

    async def put(self, path: str, data: bytes) -> None:
        """Write a whole file."""
        ...

    async def snapshot(self, kind: Literal["files", "memory"]) -> str:
        """Freeze; returns the provider's id of it. Raises `SandboxUnsupported`."""
        ...

    async def end(self) -> None:
        """Destroy it; one that is gone already is fine."""
        ...


_RATE = re.compile(
    r"rate.?limit\w*(?: (?:is |was |has been )?(?:exceeded|reached))?|too many requests|throttl"
    r"|slow down",
    re.I,
)
_QUOTA = re.compile(
    r"quota|limit (?:is |was |has been )?(?:exceeded|reached)|exceed\w* .{0,60}limit"
    r"|max(?:imum)? (?:number|concurrent)|concurrent\w* (?:sandbox|limit)"
    r"|too many (?:concurrent|running|active|sandbox)|(?:insufficient|not enough) (?:capacity|cred)"
    r"|no available runner",
    re.I,
)


def refusal(provider: str, text: str, *, retry_after_s: float | None = None) -> SandboxError | None:
    """A rate limit or a quota, recognised by the message: some providers tell them no other way."""
    line = text.strip().split("\n")[0][:200]
    # Clients put their own "rate limit exceeded" before what the service said.
    if _QUOTA.search(_RATE.sub("", text)):
        return QuotaExceeded(
            f"{provider} holds no more sandboxes for this account: {line}",
            fix="set max_live of the pool to what the account may hold, or raise the account's",
        )
    if _RATE.search(text):
        return RateLimited(
            f"{provider} creates no faster: {line}",
            fix="set creates_per_s of the pool to what the account may create",
            retry_after_s=retry_after_s,
        )
    return None


def start_fault(provider: str, error: BaseException) -> StartTimeout:
    """A start that failed for reasons of the provider's own: worth another try."""
    return StartTimeout(
        f"{provider} did not start a sandbox: {_line(error)}", fix="try again; it is their side"
    )


def gone(provider: str, sandbox_id: str, error: BaseException) -> SandboxDied:
    """The sandbox does not answer any more."""
    return SandboxDied(
        f"sandbox {sandbox_id} of {provider} is gone: {_line(error)}", fix="use a fresh one"
    )


def missing_client(provider: str, extra: str) -> SandboxUnsupported:
    """The provider's client is not installed."""
    return SandboxUnsupported(
        f"the client of {provider} is not installed",
        fix=f"pip install 'training-gym[{extra}]'",
    )


def missing_credentials(provider: str, names: str) -> SandboxUnsupported:
    """Nothing to sign in with."""
    return SandboxUnsupported(f"no credentials for {provider} found", fix=f"set {names}")


def check_spec(provider: str, spec: SandboxSpec) -> None:
    """Refuse what no remote provider can give."""
    if spec.mounts:
        raise SandboxUnsupported(
            f"{provider} cannot see {spec.mounts[0].source!r} of this machine",
            fix="write files into the sandbox instead of mounting them",
        )
    ports = [host for host in spec.network.allowed_hosts if ":" in host]
    if ports:
        raise SandboxUnsupported(
            f"{provider} allows whole hosts only, not {ports[0]!r}", fix="leave the port out"
        )


def _line(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0][:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
