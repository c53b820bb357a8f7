"""Daytona's cloud sandboxes, through its own client (`pip install 'training-gym[daytona]'`)."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from training_gym.sandboxes.remote.machine import (
    ShellResult,
    check_spec,
    gone,
    missing_client,
    missing_credentials,
    refusal,
    start_fault,
)
from training_gym.sandboxes.remote.report import remote_reports
from training_gym.sandboxes.remote.sandbox import RemoteSandbox, open_remote
from training_gym.spec.sandboxes import (
    DockerfileImage,
    HostImage,
    OciImage,
    SandboxCapabilities,
    SandboxError,
    SandboxInfo,
    SandboxSpec,
    SandboxUnsupported,
    StartFailed,
    StartTimeout,
    TierReport,
)

if TYPE_CHECKING:
    from daytona import AsyncDaytona
    from daytona import AsyncSandbox as DaytonaSandbox

_GIB_MB = 1024


class DaytonaProvider:
    """Sandboxes of the account that `DAYTONA_API_KEY` belongs to.

    `HostImage` is Daytona's default snapshot, with its own resources; those of the spec apply to
    OCI images and Dockerfiles, rounded up to whole CPUs and GiB.
    """

    name = "daytona"

    def __init__(self, *, lifetime_s: float = 3600.0) -> None:
        """Nothing is contacted yet; after `lifetime_s` Daytona ends a sandbox by itself."""
        self._lifetime_s = lifetime_s
        self._made: AsyncDaytona | None = None

    def capabilities(self) -> SandboxCapabilities:
        """What this adapter offers."""
        return SandboxCapabilities(
            images=("host", "oci", "dockerfile"),
            networks=("none", "allowlist", "public"),
            users=("user",),
            remote=True,
            creates_per_s=10.0,
        )

    async def probe(self) -> Sequence[TierReport]:
        """Whether the client and a key are here, and the key works."""
        limits = ("no snapshots, background commands or connect",)
        return await remote_reports(self, limits)

    async def create(self, spec: SandboxSpec, *, timeout_s: float = 60.0) -> RemoteSandbox:
        """One more."""
        check_spec(self.name, spec)
        if spec.user != "user":
            raise SandboxUnsupported(
                f"daytona's sandboxes have one user, not {spec.user!r}", fix="leave user as it is"
            )
        client = self._client()
        try:
            found = await client.create(self._parameters(spec), timeout=timeout_s)
        except Exception as error:
            raise _start_error(error, timeout_s) from error
        return await open_remote(DaytonaMachine(found), spec, self)

    async def list(self, tags: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Living ones, whichever process made them."""
        from datetime import datetime

        daytona, client = _module(), self._client()
        found: list[SandboxInfo] = []
        try:
            query = daytona.ListSandboxesQuery(labels=dict(tags) if tags else None)
            async for each in client.list(query):
                if str(each.state.value if each.state else "") in ("destroyed", "destroying"):
                    continue
                made = datetime.fromisoformat(each.created_at) if each.created_at else None
                found.append(
                    SandboxInfo(
                        id=each.id,
                        tags=dict(each.labels or {}),
                        created_at=made.timestamp() if made else 0.0,
                        tier="remote",
                    )
                )
        except Exception as error:
            raise _error(error, "list") from error
        return found

    async def destroy(self, sandbox_id: str) -> None:
        """End one by id."""
        client = self._client()
        try:
            await client.delete(await client.get(sandbox_id))
        except Exception as error:
            if not _is_absent(error):
                raise _error(error, sandbox_id) from error

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Not offered."""
        raise SandboxUnsupported("daytona's adapter takes no snapshots", fix="use another provider")

    async def close(self) -> None:
        """Close the connections."""
        if self._made is not None:
            await self._made.close()
            self._made = None

    def _client(self) -> AsyncDaytona:
        daytona = _module()
        if not (os.environ.get("DAYTONA_API_KEY") or os.environ.get("DAYTONA_JWT_TOKEN")):
            raise missing_credentials("daytona", "DAYTONA_API_KEY")
        if self._made is None:
            self._made = daytona.AsyncDaytona()
        return self._made

    def _parameters(self, spec: SandboxSpec) -> Any:
        daytona = _module()
        common: dict[str, Any] = {
            "labels": dict(spec.tags),
            "env_vars": dict(spec.env),
            "ephemeral": True,
            "ttl_minutes": math.ceil(self._lifetime_s / 60),
            "network_block_all": spec.network.mode == "none",
        }
        if spec.network.mode == "allowlist":
            common["domain_allow_list"] = ",".join(spec.network.allowed_hosts)
        if isinstance(spec.image, HostImage):
            return daytona.CreateSandboxFromSnapshotParams(**common)
        if isinstance(spec.image, OciImage):
            image: Any = spec.image.reference
        elif isinstance(spec.image, DockerfileImage):
            path = os.path.join(spec.image.context, spec.image.dockerfile)
            image = daytona.Image.from_dockerfile(path)
        else:
            raise SandboxUnsupported(
                f"daytona starts no image of kind {spec.image.kind!r}", fix="use an OCI image"
            )
        resources = daytona.Resources(
            cpu=math.ceil(spec.resources.cpus),
            memory=math.ceil(spec.resources.memory_mb / _GIB_MB),
            disk=math.ceil(spec.resources.disk_mb / _GIB_MB),
        )
        return daytona.CreateSandboxFromImageParams(image=image, resources=resources, **common)


class DaytonaMachine:
    """One of them, as its client sees it."""

    root = False

    def __init__(self, sandbox: DaytonaSandbox) -> None:
        """Of a sandbox the client has created."""
        self._sandbox = sandbox

    @property
    def id(self) -> str:
        """Daytona's id."""
        return str(self._sandbox.id)

    async def run(self, script: str, *, timeout_s: float) -> ShellResult:
        """By `process.exec`; its shell may be zsh, so `sh` is asked for."""
        try:
            ran = await self._sandbox.process.exec(
                f"sh -c {shlex.quote(script)}", timeout=math.ceil(timeout_s)
            )
        except Exception as error:
            raise gone("daytona", self.id, error) from error
        return ShellResult(ran.exit_code, ran.result)

    async def put(self, path: str, data: bytes) -> None:
        """By `fs.upload_file`."""
        try:
            await self._sandbox.fs.upload_file(data, path)
        except Exception as error:
            raise gone("daytona", self.id, error) from error

    async def snapshot(self, kind: Literal["files", "memory"]) -> str:
        """Not offered."""
        raise SandboxUnsupported("daytona's adapter takes no snapshots", fix="use another provider")

    async def end(self) -> None:
        """By `delete`."""
        try:
            await self._sandbox.delete()
        except Exception as error:
            if not _is_absent(error):
                raise _error(error, self.id) from error


def _start_error(error: Exception, timeout_s: float) -> SandboxError:
    daytona = _module()
    if isinstance(error, SandboxError):
        return error
    wait_s = _retry_after_s(error)
    refused = refusal("daytona", str(error), retry_after_s=wait_s)
    if refused is not None:
        return refused
    if isinstance(error, daytona.DaytonaRateLimitError):
        limited = refusal("daytona", f"rate limit: {error}", retry_after_s=wait_s)
        return limited or start_fault("daytona", error)
    if isinstance(error, daytona.DaytonaAuthenticationError):
        return missing_credentials("daytona", f"DAYTONA_API_KEY to a key that is valid ({error})")
    if isinstance(error, daytona.DaytonaTimeoutError):
        return StartTimeout(f"daytona gave no sandbox within {timeout_s:g} s", fix="try again")
    if isinstance(
        error,
        daytona.DaytonaNotFoundError
        | daytona.DaytonaValidationError
        | daytona.DaytonaBadRequestError
        | daytona.DaytonaUnprocessableEntityError,
    ):
        return StartFailed(f"daytona cannot start this: {error}", fix="check image and resources")
    return start_fault("daytona", error)


def _retry_after_s(error: Exception) -> float | None:
    headers = {k.lower(): v for k, v in dict(getattr(error, "headers", None) or {}).items()}
    try:
        return float(headers["retry-after"])
    except (KeyError, TypeError, ValueError):
        return None


def _is_absent(error: Exception) -> bool:
    return isinstance(error, _module().DaytonaNotFoundError)


def _error(error: Exception, what: str) -> SandboxError:
    if isinstance(error, SandboxError):
        return error
    return refusal("daytona", str(error)) or gone("daytona", what, error)


def _module() -> Any:
    try:
        import daytona
    except ImportError:
        raise missing_client("daytona", "daytona") from None
    return daytona
