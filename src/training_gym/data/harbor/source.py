"""Harbor tasks as tasks of a run: from a folder, a registry or a commit, to `Task` values.

A `Task` names its folder by where it came from (a path below the run's source, or a repository,
commit and path), never by where it lies on this machine, and pins its content by digest.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from training_gym.data.harbor.folder import HarborTask, is_task_folder, read_task
from training_gym.data.harbor.git import checkout
from training_gym.data.harbor.registry import choose_dataset, read_manifest, read_registry
from training_gym.data.rows import Candidate, Source
from training_gym.spec.datasets import HarborDataset
from training_gym.spec.errors import DataError
from training_gym.spec.messages import system, user
from training_gym.spec.settings import Settings
from training_gym.spec.tasks import Task

METADATA = "harbor"
"""Key of a task's metadata under which a `HarborFolder` stands."""


class HarborFolder(Settings):
    """Where a task came from, and what it must be."""

    path: str
    """Below the repository, else below the folder of the file that defines the run."""
    git: str | None = None
    commit: str | None = None
    digest: str
    name: str
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """A task folder to be read, and how to find it again."""

    folder: Path
    path: str
    git: str | None = None
    commit: str | None = None
    digest: str | None = None
    """What the registry pins, if it does."""


def read_tasks(dataset: HarborDataset, root: Path) -> list[tuple[HarborTask, HarborFolder]]:
    """All tasks the dataset names, in order; raises `DataError` for the first faulty one."""
    places = [
        place
        for place in _places(dataset, root)
        if any(fnmatch.fnmatch(place.folder.name, pattern) for pattern in dataset.tasks)
    ]
    if not places:
        raise DataError(
            f"{dataset.path} holds no Harbor task that matches {list(dataset.tasks)}",
            fix="give a folder with task.toml, a folder of such folders, or a registry's JSON file",
        )
    return [_read(place) for place in places]


def harbor_source(dataset: HarborDataset, root: Path) -> Source:
    """The tasks for `data.load`."""
    found = read_tasks(dataset, root)
    pins = "".join(f"{origin.model_dump_json()}\n" for _, origin in found)
    fingerprint = f"harbor {hashlib.sha256(pins.encode()).hexdigest()}"
    return Source(fingerprint, lambda: _candidates(dataset, found))


def folder_of(task: Task, root: Path | str) -> HarborTask:
    """The folder a `Task` stands for, read again; raises `DataError` if its content changed."""
    given: Any = task.metadata.get(METADATA)
    if not isinstance(given, dict):
        raise DataError(
            f"task {task.id} is no Harbor task", fix="use HarborDataset as the run's dataset"
        )
    origin = HarborFolder.read(given)
    base = Path(root) if origin.git is None else checkout(origin.git, origin.commit)
    found = read_task(_inside(base, origin.path, free=origin.git is None))
    if found.digest != origin.digest:
        raise DataError(
            f"{origin.name} has changed since the tasks were read: its digest is now "
            f"{found.digest[:12]}, not {origin.digest[:12]}",
            fix="put the folder back as it was, or start a new run",
        )
    return found


def _places(dataset: HarborDataset, root: Path) -> Iterator[_Place]:
    base = root if dataset.git is None else checkout(dataset.git, dataset.commit)
    here = _inside(base, dataset.path, free=dataset.git is None)
    if here.suffix == ".json":
        yield from _registry_places(dataset, here)
        return
    if not here.is_dir():
        raise DataError(f"there is no folder {here}", fix="check the dataset's path")
    git, commit = dataset.git, dataset.commit
    if is_task_folder(here):
        yield _Place(here, dataset.path, git, commit)
        return
    pinned = read_manifest(here)
    for folder in sorted(here.iterdir()):
        if is_task_folder(folder):
            name = read_task(folder).name
            path = f"{dataset.path.rstrip('/')}/{folder.name}"
            if not pinned or name in pinned:
                yield _Place(folder, path, git, commit, pinned.pop(name, None))
    if pinned:
        raise DataError(
            f"{dataset.path}/dataset.toml names tasks that are not there: {', '.join(pinned)}",
            fix="download the data set whole",
        )


def _registry_places(dataset: HarborDataset, index: Path) -> Iterator[_Place]:
    chosen = choose_dataset(read_registry(index), dataset.dataset, str(index))
    for task in chosen.tasks:
        if task.git_url is not None:
            tree = checkout(task.git_url, task.git_commit_id)
            folder = _inside(tree, task.path, free=False)
            yield _Place(folder, task.path, task.git_url, task.git_commit_id)
            continue
        folder = _inside(index.parent, task.path, free=dataset.git is None)
        path = f"{dataset.path.rpartition('/')[0] or '.'}/{task.path}"
        yield _Place(folder, path, dataset.git, dataset.commit)


def _read(place: _Place) -> tuple[HarborTask, HarborFolder]:
    task = read_task(place.folder)
    if place.digest is not None and task.digest != place.digest:
        raise DataError(
            f"{task.name} is not what dataset.toml pins: its digest is {task.digest[:12]}, not "
            f"{place.digest[:12]}",
            fix="download the task again",
        )
    steps = tuple(step.name for step in task.config.steps or ())
    origin = HarborFolder(
        path=place.path,
        git=place.git,
        commit=place.commit,
        digest=task.digest,
        name=task.name,
        steps=steps,
    )
    return task, origin


def _candidates(
    dataset: HarborDataset, found: list[tuple[HarborTask, HarborFolder]]
) -> Generator[Candidate, None, None]:
    for task, origin in found:
        before = () if dataset.system_prompt is None else (system(dataset.system_prompt),)
        metadata: dict[str, JsonValue] = {METADATA: origin.model_dump(mode="json")}
        value = Task(
            id=task.digest[:16],
            prompt=(*before, user(task.instructions[0])),
            metadata=metadata,
            split_key=task.name,
        )
        yield Candidate(value, origin.path, is_empty=not task.instructions[0].strip())


def _inside(base: Path, path: str, *, free: bool) -> Path:
    """The path below `base`; a repository's or a registry's must stay there."""
    found = (base / Path(path).expanduser()).resolve()
    if not free and not found.is_relative_to(base.resolve()):
        raise DataError(f"{path!r} leads out of {base.name}", fix="give a path inside it")
    return found
