"""E2B's cloud sandboxes, through its own client (`pip install 'training-gym[e2b]'`)."""

from __future__ import annotations

import os
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
    HostImage,
    SandboxCapabilities,
    SandboxError,
    SandboxInfo,
    SandboxSpec,
    SandboxUnsupported,
    SnapshotImage,
    StartFailed,
    StartTimeout,
    TierReport,
)

if TYPE_CHECKING:
    from e2b import AsyncSandbox


class E2BProvider:
    """Sandboxes of the account that `E2B_API_KEY` belongs to.

    A template fixes image, CPUs, memory and disk: `HostImage` is the template of `E2B_TEMPLATE`,
    or E2B's own. What the spec says of resources is not enforced.
    """

    name = "e2b"

    def __init__(self, *, template: str | None = None, lifetime_s: float = 3600.0) -> None:
        """Nothing is contacted yet.

        Args:
            template: Name or id; default `$E2B_TEMPLATE`, else E2B's own.
            lifetime_s: After so long E2B ends a sandbox by itself, whatever became of us.
        """
        self._template = template or os.environ.get("E2B_TEMPLATE") or None
        self._lifetime_s = lifetime_s

    def capabilities(self) -> SandboxCapabilities:
        """What this adapter offers. Limits are those of the smallest account: set your own."""
        return SandboxCapabilities(
            snapshots=("files", "memory"),
            images=("host", "snapshot"),
            networks=("none", "allowlist", "public"),
            users=("user", "root"),
            remote=True,
        )

    async def probe(self) -> Sequence[TierReport]:
        """Whether the client and a key are here, and the key works."""
        limits = ("resources are those of the template", "no background commands, no connect")
        return await remote_reports(self, limits)

    async def create(self, spec: SandboxSpec, *, timeout_s: float = 60.0) -> RemoteSandbox:
        """One more."""
        check_spec(self.name, spec)
        client = _client()
        try:
            found = await client.create(
                template=self._template_of(spec),
                timeout=round(self._lifetime_s),
                metadata=dict(spec.tags),
                envs=dict(spec.env),
                secure=True,
                request_timeout=timeout_s,
                **_network(spec),
            )
        except Exception as error:
            raise _start_error(error, timeout_s) from error
        return await open_remote(E2BMachine(found), spec, self)

    async def list(self, tags: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Living ones, whichever process made them."""
        e2b, client = _module(), _client()
        found: list[SandboxInfo] = []
        try:
            pages = client.list(query=e2b.SandboxQuery(metadata=dict(tags) if tags else None))
            while pages.has_next:
                found += [
                    SandboxInfo(
                        id=each.sandbox_id,
                        tags=dict(each.metadata or {}),
                        created_at=each.started_at.timestamp(),
                        tier="remote",
                    )
                    for each in await pages.next_items()
                ]
        except Exception as error:
            raise _error(error, "list") from error
        return found

    async def destroy(self, sandbox_id: str) -> None:
        """End one by id."""
        try:
            await _client().kill(sandbox_id)
        except Exception as error:
            if not isinstance(error, _module().NotFoundException):
                raise _error(error, sandbox_id) from error

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Free a snapshot."""
        try:
            await _client().delete_snapshot(snapshot_id)
        except Exception as error:
            raise _error(error, snapshot_id) from error

    async def close(self) -> None:
        """Nothing is held; sandboxes of other processes are not this one's to end."""

    def _template_of(self, spec: SandboxSpec) -> str | None:
        if isinstance(spec.image, SnapshotImage):
            return spec.image.id
        if isinstance(spec.image, HostImage):
            return self._template
        raise SandboxUnsupported(
            f"e2b starts from templates, not from an image of kind {spec.image.kind!r}",
            fix="build a template from it with E2B's tools and set E2B_TEMPLATE to its name",
        )


class E2BMachine:
    """One of them, as its client sees it."""

    root = True  # scripts run as root, so that both users' files can be placed

    def __init__(self, sandbox: AsyncSandbox) -> None:
        """Of a sandbox the client has created."""
        self._sandbox = sandbox

    @property
    def id(self) -> str:
        """E2B's id."""
        return str(self._sandbox.sandbox_id)

    async def run(self, script: str, *, timeout_s: float) -> ShellResult:
        """By `commands.run`, as root."""
        e2b = _module()
        try:
            ran = await self._sandbox.commands.run(script, user="root", timeout=timeout_s)
        except e2b.CommandExitException as ended:
            return ShellResult(ended.exit_code, ended.stdout or "")
        except Exception as error:
            raise gone("e2b", self.id, error) from error
        return ShellResult(ran.exit_code, ran.stdout)

    async def put(self, path: str, data: bytes) -> None:
        """By `files.write`, as root."""
        try:
            await self._sandbox.files.write(path, data, user="root")
        except Exception as error:
            raise gone("e2b", self.id, error) from error

    async def snapshot(self, kind: Literal["files", "memory"]) -> str:
        """By `create_snapshot`."""
        mode: Literal["full", "filesystem"] = "full" if kind == "memory" else "filesystem"
        try:
            made = await self._sandbox.create_snapshot(mode=mode)
        except Exception as error:
            raise _error(error, self.id) from error
        return str(made.snapshot_id)

    async def end(self) -> None:
        """By `kill`."""
        try:
            await self._sandbox.kill()
        except Exception as error:
            if not isinstance(error, _module().NotFoundException):
                raise _error(error, self.id) from error


def _network(spec: SandboxSpec) -> dict[str, Any]:
    if spec.network.mode == "public":
        return {"allow_internet_access": True}
    if spec.network.mode == "none":
        return {"allow_internet_access": False}
    rules = {"allow_out": list(spec.network.allowed_hosts), "deny_out": [_module().ALL_TRAFFIC]}
    return {"network": rules}


def _start_error(error: Exception, timeout_s: float) -> SandboxError:
    e2b = _module()
    if isinstance(error, SandboxError):
        return error
    refused = refusal("e2b", str(error))
    if isinstance(error, e2b.RateLimitException) or refused is not None:
        return refused or refusal("e2b", f"rate limit: {error}") or start_fault("e2b", error)
    if isinstance(error, e2b.AuthenticationException):
        return missing_credentials("e2b", f"E2B_API_KEY to a key that is valid ({error})")
    if isinstance(error, e2b.TemplateException | e2b.NotFoundException) or (
        getattr(error, "status_code", None) in (400, 404)
    ):
        return StartFailed(f"e2b has no such template or snapshot: {error}", fix="check its name")
    if isinstance(error, e2b.TimeoutException):
        return StartTimeout(f"e2b gave no sandbox within {timeout_s:g} s", fix="try again")
    return start_fault("e2b", error)


def _error(error: Exception, what: str) -> SandboxError:
    return refusal("e2b", str(error)) or gone("e2b", what, error)


def _module() -> Any:
    try:
        import e2b
    except ImportError:
        raise missing_client("e2b", "e2b") from None
    return e2b


def _client() -> type[AsyncSandbox]:
    client: type[AsyncSandbox] = _module().AsyncSandbox
    if not os.environ.get("E2B_API_KEY"):
        raise missing_credentials("e2b", "E2B_API_KEY")
    return client
