"""Images on disk: an OCI layout, or an archive of one, also as `docker save` writes it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_gym.spec.sandboxes import StartFailed

_MAX_JSON = 16 << 20
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Layers:
    """What an image consists of."""

    digest: str
    """Of its manifest, hexadecimal."""
    layers: Sequence[Path]
    """Tar archives, plain or gzip, the lowest first."""
    env: Mapping[str, str]


def architecture() -> str:
    """This machine's, as images call it."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Layers]:
    """The image of this machine's architecture at a path; raises `StartFailed`."""
    if path.is_dir():
        yield _read(path)
        return
    if not path.is_file() or not tarfile.is_tarfile(path):
        raise StartFailed(
            f"{path} is no image: neither an OCI layout nor an archive of one",
            fix="make one with `skopeo copy … oci:FOLDER` or `docker save -o image.tar NAME`",
        )
    with tempfile.TemporaryDirectory(prefix="training-gym-image-") as folder:
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
        yield _read(Path(folder))


def _read(folder: Path) -> Layers:
    try:
        if (folder / "index.json").exists():
            return _read_oci(folder)
        return _read_docker(folder)
    except (OSError, KeyError, IndexError, TypeError, ValueError) as error:
        raise StartFailed(
            f"{folder} is no image that can be read: {type(error).__name__}: {error}",
            fix="it needs oci-layout, index.json and blobs/, or docker's manifest.json",
        ) from error


def _read_oci(folder: Path) -> Layers:
    index = _json(folder / "index.json")
    descriptor = choose(index["manifests"])
    manifest = _json(blob(folder, descriptor["digest"]))
    while "manifests" in manifest:
        descriptor = choose(manifest["manifests"])
        manifest = _json(blob(folder, descriptor["digest"]))
    config = _json(blob(folder, manifest["config"]["digest"]))
    layers = [blob(folder, layer["digest"]) for layer in manifest["layers"]]
    return Layers(descriptor["digest"].partition(":")[2], layers, environment(config))


def _read_docker(folder: Path) -> Layers:
    text = (folder / "manifest.json").read_bytes()
    entry = json.loads(text)[0]
    config = _json(_inside(folder, entry["Config"]))
    layers = [_inside(folder, name) for name in entry["Layers"]]
    return Layers(hashlib.sha256(text).hexdigest(), layers, environment(config))


def choose(manifests: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The manifest for this machine among those of an index."""
    for manifest in manifests:
        wanted = manifest.get("platform", {})
        if wanted.get("os", "linux") == "linux" and wanted.get("architecture") == architecture():
            return manifest
    if len(manifests) == 1 and "platform" not in manifests[0]:
        return manifests[0]
    found = [str(entry.get("platform", {}).get("architecture")) for entry in manifests]
    raise ValueError(f"no image for linux/{architecture()} among {', '.join(found)}")


def blob(folder: Path, digest: str) -> Path:
    """A blob's file, its content checked against its name."""
    kind, _, value = digest.partition(":")
    if kind != "sha256" or not value.isalnum():
        raise ValueError(f"digest {digest!r}")
    path = folder / "blobs" / kind / value
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != value:
        raise ValueError(f"blob {value[:12]} is damaged: its content has {found[:12]}")
    return path


def environment(config: Mapping[str, Any]) -> dict[str, str]:
    """What the image's configuration sets."""
    lines = config.get("config", {}).get("Env") or []
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _inside(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} leads outside")
    return path


def _json(path: Path) -> Any:
    if path.stat().st_size > _MAX_JSON:
        raise ValueError(f"{path.name} is too long")
    return json.loads(path.read_bytes())
