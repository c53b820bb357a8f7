"""Root file systems for sandboxes, made ready once and kept below the home folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from training_gym.sandboxes.images import build, layout, registry
from training_gym.sandboxes.images.unpack import unpack
from training_gym.spec.home import home
from training_gym.spec.sandboxes import (
    DockerfileImage,
    FolderImage,
    HostImage,
    Image,
    OciImage,
    SandboxUnsupported,
    StartFailed,
)


@dataclass(frozen=True)
class Root:
    """An image that lies ready."""

    folder: Path | None = None
    """Its root; None: the host's own programs."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment that the image asks for."""
    digest: str = ""
    """Of its manifest, where it has one."""

    @property
    def warm(self) -> bool:
        """Whether the zygote's own interpreter belongs to it."""
        return self.folder is None


class ImageStore:
    """Makes images ready: each once, whoever asks."""

    def __init__(self, first_uid: int | None = None) -> None:
        """`first_uid`: host uid of the sandboxes' uid 0, where images are to belong to it."""
        self._first_uid = first_uid
        self._ready: dict[str, asyncio.Task[Root]] = {}

    async def root(self, image: Image) -> Root:
        """The root of an image; raises `StartFailed`, `SandboxUnsupported`."""
        if isinstance(image, HostImage):
            return Root()
        if isinstance(image, FolderImage):
            if not Path(image.path).is_dir():
                raise StartFailed(f"there is no folder {image.path}", fix="check the path")
            return Root(Path(image.path).resolve())
        key = image.model_dump_json()
        known = self._ready.get(key)
        if known is None or (known.done() and (known.cancelled() or known.exception())):
            known = self._ready[key] = asyncio.create_task(self._prepare(image))
        return await asyncio.shield(known)

    async def digest(self, image: Image) -> str:
        """What tells an image's content from others', whatever it is called; made ready for it.

        Empty for those that are their own name: the host, a folder, a snapshot.
        """
        if not isinstance(image, OciImage | DockerfileImage):
            return ""
        return (await self.root(image)).digest

    async def _prepare(self, image: Image) -> Root:
        if isinstance(image, DockerfileImage):
            with tempfile.TemporaryDirectory(prefix="training-gym-build-") as folder:
                archive = Path(folder) / "image.tar"
                await build.build(image, archive)
                return await asyncio.to_thread(self._unpack_layout, archive)
        if isinstance(image, OciImage):
            if os.path.isabs(image.reference):
                return await asyncio.to_thread(self._unpack_layout, Path(image.reference))
            pulled = await registry.pull(image.reference, home() / "images" / "blobs")
            return await asyncio.to_thread(self._unpack, pulled)
        raise SandboxUnsupported(
            f"an image of kind {image.kind!r} has no root", fix="use another kind"
        )

    def _unpack_layout(self, path: Path) -> Root:
        with layout.opened(path) as found:
            return self._unpack(found)

    def _unpack(self, found: layout.Layers) -> Root:
        shift = "plain" if self._first_uid is None else str(self._first_uid)
        target = home() / "images" / f"{found.digest}-{shift}"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            # Complete or not there: another process may be at the same image.
            partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
            try:
                unpack(found.layers, partial, self._first_uid)
                partial.chmod(0o755)
                partial.rename(target)
            except OSError as error:
                shutil.rmtree(partial, ignore_errors=True)
                if not target.exists():
                    raise StartFailed(
                        f"the image cannot be unpacked: {error}",
                        fix="check the image, and the free space of the home folder",
                    ) from error
        return Root(target, dict(found.env), found.digest)
