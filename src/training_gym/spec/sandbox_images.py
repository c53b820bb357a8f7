"""What a sandbox's files begin as."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from training_gym.spec.settings import Settings


class HostImage(Settings):
    """The host's own programs, read-only: `/usr` and what it needs; none of the host's data."""

    kind: Literal["host"] = "host"


class FolderImage(Settings):
    """A folder that holds a root file system."""

    kind: Literal["folder"] = "folder"
    path: str
    """Absolute path on the host."""


class OciImage(Settings):
    """A container image: from a registry, or from an OCI layout (folder or tar archive) on disk."""

    kind: Literal["oci"] = "oci"
    reference: str
    """`name:tag` or `name@sha256:…` of a registry, or the path of an OCI layout or archive."""


class DockerfileImage(Settings):
    """A Dockerfile, built where a builder exists."""

    kind: Literal["dockerfile"] = "dockerfile"
    context: str
    """Folder the build may copy from."""
    dockerfile: str = "Dockerfile"
    """Path of the Dockerfile in the context."""
    build_timeout_s: float = Field(600, gt=0)


class SnapshotImage(Settings):
    """The files of an earlier sandbox: what `Sandbox.snapshot` returned, by its provider's id."""

    kind: Literal["snapshot"] = "snapshot"
    id: str


Image = Annotated[
    HostImage | FolderImage | OciImage | DockerfileImage | SnapshotImage,
    Field(discriminator="kind"),
]
