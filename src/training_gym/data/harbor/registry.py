"""Registries: a JSON index of data sets whose tasks lie on disk or in git; dataset.toml."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from training_gym.data.harbor.model import HarborModel
from training_gym.spec.errors import DataError, did_you_mean

MANIFEST_FILE = "dataset.toml"

_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)(?:[.-]?(a|b|rc)\.?(\d*))?", re.IGNORECASE)


class RegistryTask(HarborModel):
    """Where one task of a data set lies."""

    name: str
    git_url: str | None = None
    git_commit_id: str | None = None
    path: str


class RegistryDataset(HarborModel):
    """One version of a data set."""

    name: str
    version: str
    description: str
    tasks: list[RegistryTask]


class PinnedTask(HarborModel):
    """A task of a dataset.toml: its content is known by its digest."""

    name: str
    digest: str = Field(pattern=r"^sha256:[a-f0-9]{64}$")


_registry: TypeAdapter[list[RegistryDataset]] = TypeAdapter(list[RegistryDataset])
_pinned: TypeAdapter[list[PinnedTask]] = TypeAdapter(list[PinnedTask])


def read_registry(path: Path) -> list[RegistryDataset]:
    """All data sets of an index; raises `DataError`."""
    try:
        return _registry.validate_python(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is no registry of Harbor tasks: {_first(error)}",
            fix="give a JSON list of data sets with name, version, description and tasks",
        ) from None


def choose_dataset(
    datasets: list[RegistryDataset], name: str | None, where: str
) -> RegistryDataset:
    """The data set `name` or `name@version`; without a version `head`, else the highest."""
    wanted, _, version = (name or "").partition("@")
    names = sorted({dataset.name for dataset in datasets})
    if not wanted and len(names) == 1:
        wanted = names[0]
    versions = {entry.version: entry for entry in datasets if entry.name == wanted}
    if not versions:
        raise DataError(
            f"{where} has no data set {wanted!r}" if wanted else f"{where} has several data sets",
            fix="set dataset: " + did_you_mean(wanted, names),
        )
    chosen = version or best_version(list(versions))
    if chosen not in versions:
        raise DataError(f"{wanted} has no version {chosen!r}", fix=did_you_mean(chosen, versions))
    return versions[chosen]


def best_version(versions: list[str]) -> str:
    """`head`, else the highest number, else the last by name."""
    if "head" in versions:
        return "head"
    numbered = [(key, version) for version in versions if (key := _version_key(version))]
    if numbered:
        return max(numbered, key=lambda pair: pair[0])[1]
    return max(versions)


def read_manifest(folder: Path) -> dict[str, str]:
    """Digests by task name from dataset.toml; empty where there is none."""
    path = folder / MANIFEST_FILE
    if not path.is_file():
        return {}
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        pinned = _pinned.validate_python(data.get("tasks", []))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {_first(error)}", fix="mend the file") from None
    return {task.name: task.digest.removeprefix("sha256:") for task in pinned}


def _version_key(version: str) -> tuple[Any, ...] | None:
    found = _VERSION.fullmatch(version)
    if found is None:
        return None
    release = [int(part) for part in found[1].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    stage = (found[2] or "z").lower()  # a release comes after its candidates
    return (tuple(release), stage, int(found[3] or 0))


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, found['loc']))}: {found['msg']}"
    return str(error)
