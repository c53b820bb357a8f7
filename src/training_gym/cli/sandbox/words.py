"""What the words of a `sandbox` command mean."""

from __future__ import annotations

import os

from training_gym.cli.failures import UsageError
from training_gym.spec.sandboxes import (
    DockerfileImage,
    FolderImage,
    HostImage,
    Image,
    Mount,
    OciImage,
)


def image_of(text: str, dockerfile: str) -> Image:
    """`host`, a folder, an OCI layout, archive or name; or a folder with a Dockerfile."""
    if dockerfile:
        return DockerfileImage(context=os.path.abspath(dockerfile))
    if text == "host":
        return HostImage()
    if os.path.isdir(text) and not os.path.exists(os.path.join(text, "oci-layout")):
        return FolderImage(path=os.path.abspath(text))
    return OciImage(reference=os.path.abspath(text) if os.path.exists(text) else text)


def mount_of(text: str) -> Mount:
    """`SOURCE:TARGET`; raises `UsageError`."""
    source, colon, target = text.partition(":")
    if not colon or not target.startswith("/"):
        raise UsageError(f"--mount {text} is not SOURCE:TARGET", fix="such as --mount data:/data")
    if not os.path.exists(source):
        raise UsageError(f"--mount {text}: there is no {source}", fix="check the path")
    return Mount(source=os.path.abspath(source), target=target)


def pair_of(text: str) -> tuple[str, str]:
    """`NAME=VALUE`; raises `UsageError`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--env {text} is not NAME=VALUE", fix="such as --env LANG=C")
    return name, value
