"""`docker` and `podman`: containers of an engine that is there, by its command line.

A container is not tied to us: one whose owner was killed lives until its owner's lease is reaped.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training_gym.sandboxes.engine import Container, Engine
from training_gym.sandboxes.remote.sandbox import RemoteSandbox, open_remote
from training_gym.spec.sandboxes import (
    DockerfileImage,
    Image,
    OciImage,
    SandboxCapabilities,
    SandboxError,
    SandboxInfo,
    SandboxSpec,
    SandboxUnsupported,
    SnapshotImage,
    StartFailed,
    TierReport,
)

_OURS = "training-gym.sandbox"
_TAG = "training-gym.tag."


class ContainerProvider:
    """Containers of one engine."""

    def __init__(self, engine: str) -> None:
        """`docker` or `podman`."""
        self.name = engine
        self._engine = Engine(engine)
        self._alive: dict[str, RemoteSandbox] = {}
        self._deleted: list[str] = []

    def capabilities(self) -> SandboxCapabilities:
        """Networks other than none would need rules in the engine's bridge."""
        return SandboxCapabilities(
            snapshots=("files",),
            images=("oci", "dockerfile", "snapshot"),
            users=("user", "root"),
        )

    async def probe(self) -> Sequence[TierReport]:
        """Part of `SandboxProvider`: asks the engine for its state."""
        told: dict[str, Any] = {"tier": "container", "provider": self.name}
        try:
            self._engine.check()
            await self._engine.need("info", "--format", "json", timeout_s=15)
        except SandboxError as error:
            return [TierReport(**told, works=False, reason=error.message, fix=error.fix)]
        return [
            TierReport(
                **told,
                works=True,
                guarantees=("files", "processes", "network", "memory", "process_count", "cpu"),
                limits=(
                    "it shares the host's kernel: not for code written to attack it",
                    "what may be written is not limited",
                    "it outlives a killed owner until its lease is reaped",
                    "a process that leaves its session outlives its command",
                    "a command can trace what runs it there, and so forge its exit code",
                ),
            )
        ]

    async def image_digest(self, image: Image) -> str:
        """Part of `KnowsImages`: pulls, loads or builds it if need be."""
        if isinstance(image, SnapshotImage):
            return ""
        name = await self._image(SandboxSpec(image=image))
        code, out, _ = await self._engine.call("image", "inspect", "--format", "{{.Id}}", name)
        if code:
            await self._engine.need("pull", "-q", name, timeout_s=600)
            out = await self._engine.need("image", "inspect", "--format", "{{.Id}}", name)
        return out.decode().strip()

    async def create(self, spec: SandboxSpec, *, timeout_s: float = 60.0) -> RemoteSandbox:
        """Part of `SandboxProvider`."""
        image = await self._image(spec)
        if spec.network.mode != "none":
            raise SandboxUnsupported(
                f"{self.name} sandboxes have no network", fix="use provider 'local'"
            )
        words = ["run", "-d", "--init", "--network", "none", *_limits(spec), *_labels(spec)]
        for mount in spec.mounts:
            words += ["-v", f"{mount.source}:{mount.target}:ro"]
        if spec.user == "user":
            words += ["--user", "1000:1000"]
        name = f"training-gym-{secrets.token_hex(8)}"
        try:
            await self._engine.need(
                *words, "--name", name, "--entrypoint", "sleep", image, "2147483",
                timeout_s=timeout_s,
            )  # fmt: skip
            if spec.user == "user" and not isinstance(spec.image, SnapshotImage):
                # In the container's own layer, where a snapshot finds it.
                with tempfile.TemporaryDirectory() as empty:
                    os.chmod(empty, 0o1777)
                    await self._engine.need("cp", empty, f"{name}:/workspace")
        except BaseException:
            await asyncio.shield(self._engine.call("rm", "-f", name))
            raise
        machine = Container(self._engine, name, root=spec.user == "root")
        sandbox = await open_remote(machine, spec, self)
        sandbox.tier = "container"
        self._alive[name] = sandbox
        return sandbox

    async def _image(self, spec: SandboxSpec) -> str:
        if isinstance(spec.image, SnapshotImage):
            code, _, _ = await self._engine.call("image", "inspect", spec.image.id)
            if code:
                raise StartFailed(
                    f"{self.name} has no snapshot {spec.image.id!r}", fix="take one first"
                )
            return spec.image.id
        if isinstance(spec.image, OciImage) and not os.path.isabs(spec.image.reference):
            return spec.image.reference
        if isinstance(spec.image, OciImage):
            out = await self._engine.need("load", "-q", "-i", spec.image.reference, timeout_s=600)
            return out.decode().strip().splitlines()[-1].rpartition(": ")[2]
        if isinstance(spec.image, DockerfileImage):
            file = str(Path(spec.image.context) / spec.image.dockerfile)
            build = ("build", "-q", "-f", file, spec.image.context)
            out = await self._engine.need(*build, timeout_s=spec.image.build_timeout_s)
            return out.decode().strip().splitlines()[-1]
        raise SandboxUnsupported(
            f"{self.name} needs an image of its own, not {spec.image.kind!r}",
            fix="give an OCI image or a Dockerfile",
        )

    async def list(self, tags: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Part of `SandboxProvider`."""
        filters = ["--filter", f"label={_OURS}"]
        for name, value in (tags or {}).items():
            filters += ["--filter", f"label={_TAG}{name}={value}"]
        out = await self._engine.need("ps", "-q", "--no-trunc", *filters)
        ids = out.decode().split()
        if not ids:
            return []
        described = json.loads(await self._engine.need("inspect", *ids))
        return [_info(entry) for entry in described]

    async def destroy(self, sandbox_id: str) -> None:
        """Part of `SandboxProvider`."""
        if sandbox_id in self._alive:
            await self._alive.pop(sandbox_id).destroy()
        else:
            await self._engine.call("rm", "-f", sandbox_id)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Part of `SandboxProvider`; what still builds on it keeps it until the end."""
        code, _, _ = await self._engine.call("rmi", snapshot_id)
        if code:
            self._deleted.append(snapshot_id)

    async def close(self) -> None:
        """Part of `SandboxProvider`."""
        for sandbox in list(self._alive.values()):
            await sandbox.destroy()
        self._alive.clear()
        # The latest first: an image stays as long as another one lies on it.
        while self._deleted:
            await self._engine.call("rmi", self._deleted.pop())


def _limits(spec: SandboxSpec) -> list[str]:
    limits = spec.resources
    return [
        "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
        "--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m",
        "--cpus", str(limits.cpus), "--pids-limit", str(limits.processes),
        "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--ulimit", "core=0:0",
    ]  # fmt: skip


def _labels(spec: SandboxSpec) -> list[str]:
    words = ["--label", f"{_OURS}={time.time()}"]
    for name, value in spec.tags.items():
        words += ["--label", f"{_TAG}{name}={value}"]
    return words


def _info(entry: Mapping[str, Any]) -> SandboxInfo:
    labels = entry["Config"]["Labels"]
    tags = {name.removeprefix(_TAG): labels[name] for name in labels if name.startswith(_TAG)}
    return SandboxInfo(
        id=entry["Name"].lstrip("/"),
        tags=tags,
        created_at=float(labels[_OURS]),
        tier="container",
    )


class DockerProvider(ContainerProvider):
    """What the entry point names."""

    def __init__(self) -> None:
        """Nothing is started before the first creation."""
        super().__init__("docker")


class PodmanProvider(ContainerProvider):
    """What the entry point names."""

    def __init__(self) -> None:
        """Nothing is started before the first creation."""
        super().__init__("podman")
