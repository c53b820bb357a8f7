"""How runs differ: definitions leaf by leaf, source files line by line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training_gym.records.documents import read_document_if_any
from training_gym.records.index.run_values import ConfigChange, ConfigDifference, SourceChange
from training_gym.records.run_directory import RunDirectory

LONGEST_DIFF = 100_000
LARGEST_FILE = 1_000_000
"""Bytes; larger files are only said to differ."""
_MISSING = object()


def config_difference(before: RunDirectory, after: RunDirectory) -> ConfigDifference:
    """How the run `after` differs from the run `before`."""
    old, new = before.manifest, after.manifest
    return ConfigDifference(
        before=before.run_id,
        after=after.run_id,
        changes=_changes(old.run, new.run, old.origins, new.origins),
        sources=_sources(before.source, after.source),
        environment=_changes(
            read_document_if_any(before.environment_path) or {},
            read_document_if_any(after.environment_path) or {},
            {},
            {},
        ),
    )


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every leaf of plain data by its dotted path; an empty container is a leaf."""
    if isinstance(value, Mapping) and value:
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple) and value:
        items = [(str(number), item) for number, item in enumerate(value)]
    else:
        return {path: value}
    found: dict[str, Any] = {}
    for key, item in items:
        found |= leaves(item, f"{path}.{key}" if path else key)
    return found


def differing(runs: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
    """Paths at which definitions are not all the same, and each one's values there."""
    flat = [leaves(run) for run in runs]
    paths = sorted({path for one in flat for path in one})
    apart = tuple(
        path
        for path in paths
        if any(one.get(path, _MISSING) != flat[0].get(path, _MISSING) for one in flat[1:])
    )
    return apart, [{path: one.get(path) for path in apart} for one in flat]


def _changes(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    old_origins: Mapping[str, str],
    new_origins: Mapping[str, str],
) -> tuple[ConfigChange, ...]:
    before, after = leaves(old), leaves(new)
    return tuple(
        ConfigChange(
            path=path,
            before=before.get(path),
            after=after.get(path),
            before_origin=old_origins.get(path, "default") if path in before else "",
            after_origin=new_origins.get(path, "default") if path in after else "",
        )
        for path in sorted(before.keys() | after.keys())
        if path and before.get(path, _MISSING) != after.get(path, _MISSING)
    )


def _sources(old: Path, new: Path) -> tuple[SourceChange, ...]:
    before, after = _files(old), _files(new)
    found = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            found.append(SourceChange(path=name, state="removed", diff=""))
        elif name not in before:
            found.append(SourceChange(path=name, state="added", diff=""))
        elif not _same(before[name], after[name]):
            diff = _diff(before[name], after[name], name)
            found.append(SourceChange(path=name, state="changed", diff=diff))
    return tuple(found)


def _files(folder: Path) -> dict[str, Path]:
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts
    }


def _same(old: Path, new: Path) -> bool:
    return old.stat().st_size == new.stat().st_size and old.read_bytes() == new.read_bytes()


def _diff(old: Path, new: Path, name: str) -> str:
    if max(old.stat().st_size, new.stat().st_size) > LARGEST_FILE:
        return ""
    try:
        before, after = (path.read_text().splitlines(keepends=True) for path in (old, new))
    except UnicodeDecodeError:
        return ""
    return "".join(difflib.unified_diff(before, after, name, name))[:LONGEST_DIFF]
