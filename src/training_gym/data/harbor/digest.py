"""The digest of a task's content, the one that Harbor's registries pin."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from training_gym.data.harbor.ignore import IgnoreRules, TaskIgnore

_FILES = ("task.toml", "instruction.md", "README.md", "trajectory.json")
_FOLDERS = ("environment", "tests", "solution", "steps")
_LEFT_OUT = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")


def task_files(folder: Path) -> list[Path]:
    """The files a task consists of, sorted: what .gitignore and .harborignore leave."""
    ignore = TaskIgnore(folder)
    gitignore = folder / ".gitignore"
    rules = IgnoreRules(
        gitignore.read_text(encoding="utf-8").splitlines() if gitignore.exists() else _LEFT_OUT
    )
    found = [folder / name for name in _FILES if (folder / name).exists()]
    for name in _FOLDERS:
        if (folder / name).is_dir():
            found += _walk(folder / name, ignore)
    kept = [path for path in found if not rules.verdict(path.relative_to(folder).as_posix())]
    return sorted(kept, key=lambda path: path.relative_to(folder).as_posix())


def content_digest(folder: Path) -> str:
    """Hexadecimal SHA-256 over every file's path and hash."""
    digest = hashlib.sha256()
    for path in task_files(folder):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def _walk(folder: Path, ignore: TaskIgnore) -> Iterator[Path]:
    if ignore.leaves_out(folder):
        return
    for path in sorted(folder.iterdir()):
        if ignore.leaves_out(path):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path, ignore)
        elif path.is_file():
            yield path
