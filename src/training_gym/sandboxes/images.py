"""Root file systems for sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from training_gym.spec.sandboxes import FolderImage, HostImage, Image, StartFailed


@dataclass(frozen=True)
class Root:
    """An image that lies ready."""

    folder: Path | None = None
    """Its root; None: the host's own programs."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment that the image asks for."""

    @property
    def warm(self) -> bool:
        """Whether the zygote's own interpreter belongs to it."""
        return self.folder is None


class ImageStore:
    """Makes images ready."""

    async def root(self, image: Image) -> Root:
        """The root of an image; raises `StartFailed`."""
        if isinstance(image, HostImage):
            return Root()
        if isinstance(image, FolderImage):
            folder = Path(image.path)
            if not folder.is_dir():
                raise StartFailed(f"there is no folder {image.path}", fix="check the path")
            return Root(folder)
        raise StartFailed(f"{image.kind} images: soon", fix="wait")
