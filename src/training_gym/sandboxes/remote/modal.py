"""Modal's sandboxes, through its own client (`pip install 'training-gym[modal]'`)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

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
    SnapshotImage,
    StartFailed,
    StartTimeout,
    TierReport,
)


class ModalProvider:
    """Sandboxes of the workspace that `modal setup` or `MODAL_TOKEN_ID` signs in to.

    `HostImage` is Modal's Debian with Python. Commands of the user `user` step down from root by
    `setpriv`, which Debian images have.
    """

    name = "modal"

    def __init__(self, *, app: str = "training-gym-sandboxes", lifetime_s: float = 3600.0) -> None:
        """Nothing is contacted yet.

        Args:
            app: Name of the Modal app they belong to; made if it does not exist.
            lifetime_s: After so long Modal ends a sandbox by itself, whatever became of us.
        """
        self._app_name = app
        self._lifetime_s = lifetime_s
        self._app: Any = None

    def capabilities(self) -> SandboxCapabilities:
        """What this adapter offers; the rate is what Modal gives accounts by default."""
        return SandboxCapabilities(
            snapshots=("files",),
            images=("host", "oci", "dockerfile", "snapshot"),
            networks=("none", "allowlist", "public"),
            users=("user", "root"),
            remote=True,
            creates_per_s=5.0,
        )

    async def probe(self) -> Sequence[TierReport]:
        """Whether the client and credentials are here, and work."""
        return await remote_reports(self, ("no background commands, no connect",))

    async def create(self, spec: SandboxSpec, *, timeout_s: float = 60.0) -> RemoteSandbox:
        """One more."""
        import asyncio

        check_spec(self.name, spec)
        modal = _module()
        try:
            async with asyncio.timeout(timeout_s):
                found = await modal.Sandbox.create.aio(
                    app=await self._our_app(),
                    image=_image(spec),
                    tags=dict(spec.tags),
                    env=dict(spec.env),
                    timeout=round(self._lifetime_s),
                    cpu=(spec.resources.cpus, spec.resources.cpus),
                    memory=(spec.resources.memory_mb, spec.resources.memory_mb),
                    **_network(spec),
                )
        except Exception as error:
            raise _start_error(error, timeout_s) from error
        return await open_remote(ModalMachine(found), spec, self)

    async def list(self, tags: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Living ones of our app, whichever process made them."""
        modal = _module()
        found: list[SandboxInfo] = []
        try:
            app = await self._our_app()
            wanted = dict(tags) if tags else None
            async for each in modal.Sandbox.list.aio(app_id=app.app_id, tags=wanted):
                found.append(
                    SandboxInfo(
                        id=each.object_id,
                        tags=dict(await each.get_tags.aio()),
                        created_at=time.time(),  # the client does not tell
                        tier="remote",
                    )
                )
        except Exception as error:
            raise _error(error, "list") from error
        return found

    async def destroy(self, sandbox_id: str) -> None:
        """End one by id."""
        modal = _module()
        try:
            await ModalMachine(await modal.Sandbox.from_id.aio(sandbox_id)).end()
        except Exception as error:
            if not _is_absent(error):
                raise _error(error, sandbox_id) from error

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Modal frees the images of snapshots itself, 30 days after they were taken."""

    async def close(self) -> None:
        """Nothing is held; sandboxes of other processes are not this one's to end."""

    async def _our_app(self) -> Any:
        if self._app is None:
            modal = _module()
            self._app = await modal.App.lookup.aio(self._app_name, create_if_missing=True)
        return self._app


class ModalMachine:
    """One of them, as its client sees it."""

    root = True

    def __init__(self, sandbox: Any) -> None:
        """Of a `modal.Sandbox`."""
        self._sandbox = sandbox

    @property
    def id(self) -> str:
        """Modal's id."""
        return str(self._sandbox.object_id)

    async def run(self, script: str, *, timeout_s: float) -> ShellResult:
        """By `exec`."""
        try:
            process = await self._sandbox.exec.aio(
                "sh", "-c", script, timeout=round(timeout_s), text=True
            )
            output = await process.stdout.read.aio()
            return ShellResult(await process.wait.aio(), output)
        except Exception as error:
            raise gone("modal", self.id, error) from error

    async def put(self, path: str, data: bytes) -> None:
        """By `filesystem.write_bytes`."""
        try:
            await self._sandbox.filesystem.write_bytes.aio(data, path)
        except Exception as error:
            raise gone("modal", self.id, error) from error

    async def snapshot(self, kind: Literal["files", "memory"]) -> str:
        """By `snapshot_filesystem`."""
        try:
            image = await self._sandbox.snapshot_filesystem.aio()
        except Exception as error:
            raise _error(error, self.id) from error
        return str(image.object_id)

    async def end(self) -> None:
        """By `terminate`."""
        try:
            await self._sandbox.terminate.aio(wait=True)
        except Exception as error:
            if not _is_absent(error):
                raise _error(error, self.id) from error


def _image(spec: SandboxSpec) -> Any:
    modal = _module()
    image = spec.image
    if isinstance(image, HostImage):
        return modal.Image.debian_slim()
    if isinstance(image, OciImage):
        return modal.Image.from_registry(image.reference)
    if isinstance(image, DockerfileImage):
        path = Path(image.context) / image.dockerfile
        return modal.Image.from_dockerfile(path, context_dir=image.context)
    if isinstance(image, SnapshotImage):
        return modal.Image.from_id(image.id)
    raise SandboxUnsupported(
        f"modal starts no image of kind {image.kind!r}", fix="use an OCI image or a Dockerfile"
    )


def _network(spec: SandboxSpec) -> dict[str, Any]:
    if spec.network.mode == "none":
        return {"block_network": True}
    if spec.network.mode == "allowlist":
        return {"outbound_domain_allowlist": list(spec.network.allowed_hosts)}
    return {}


def _start_error(error: Exception, timeout_s: float) -> SandboxError:
    modal = _module()
    if isinstance(error, SandboxError):
        return error
    refused = refusal("modal", str(error))
    if refused is not None:
        return refused
    known = modal.exception
    if isinstance(error, known.ResourceExhaustedError):
        return refusal("modal", f"rate limit: {error}") or start_fault("modal", error)
    if isinstance(error, known.AuthError):
        return missing_credentials("modal", f"a token that is valid ({error})")
    if isinstance(error, TimeoutError | known.TimeoutError | known.SandboxTimeoutError):
        return StartTimeout(f"modal gave no sandbox within {timeout_s:g} s", fix="try again")
    if isinstance(error, known.NotFoundError | known.InvalidError | known.ImageBuildError):
        return StartFailed(f"modal cannot start this: {error}", fix="check image and resources")
    return start_fault("modal", error)


def _is_absent(error: Exception) -> bool:
    known = _module().exception
    return isinstance(error, known.NotFoundError | known.SandboxTerminatedError)


def _error(error: Exception, what: str) -> SandboxError:
    if isinstance(error, SandboxError):
        return error
    if isinstance(error, _module().exception.AuthError):
        return missing_credentials("modal", f"a token that is valid ({error})")
    return refusal("modal", str(error)) or gone("modal", what, error)


def _module() -> Any:
    try:
        import modal
    except ImportError:
        raise missing_client("modal", "modal") from None
    given = os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET")
    path = Path(os.environ.get("MODAL_CONFIG_PATH") or Path.home() / ".modal.toml")
    if not given and not path.exists():
        raise missing_credentials(
            "modal", "MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or run `modal setup`"
        )
    return modal
