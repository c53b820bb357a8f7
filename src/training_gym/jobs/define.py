"""From what the user wrote to what travels: a plain definition, its origins and its files."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_gym.data import write_rows
from training_gym.jobs.capture import (
    LARGE_FILE_BYTES,
    Origin,
    capture,
    data_path,
    file_sha256,
)
from training_gym.models.catalogue import CATALOGUE, find
from training_gym.planning.origins import origins_of
from training_gym.spec.code import Code
from training_gym.spec.companions import companion_name, with_companion
from training_gym.spec.datasets import (
    FileDataset,
    HarborDataset,
    HuggingFaceDataset,
    RowsDataset,
)
from training_gym.spec.errors import DataError
from training_gym.spec.plan import Origin as ValueOrigin
from training_gym.spec.run import RunSpec
from training_gym.spec.settings import Settings

Files = dict[str, Path | bytes]


@dataclass(frozen=True)
class Definition:
    """What will be checked, planned and launched, independent of the process that defined it."""

    run: RunSpec
    origins: dict[str, ValueOrigin]
    files: Files
    """What travels, by path in the archive."""


def define(config: RunSpec, origin: Origin, staging: Path, user_paths: Set[str]) -> Definition:
    """Make `config` independent of this process; raises `SourceError` or `DataError`.

    Args:
        config: What the user wrote.
        origin: Where it was written: relative paths are relative to there.
        staging: Folder that may be written to until the files are packed.
        user_paths: Paths set by hand on top of it.
    """
    files: Files = {}
    values = {name: getattr(config, name) for name in config.model_fields_set}
    values["model"] = _model(config.model, origin.folder)
    named = companion_name(config.recipe.algorithm)
    if named is not None:
        absolute = with_companion(config.recipe.algorithm, _model(named, origin.folder))
        values["recipe"] = config.recipe.changed(algorithm=absolute)
    if config.resume_from_checkpoint is not None:
        checkpoint = origin.folder / Path(config.resume_from_checkpoint).expanduser()
        values["resume_from_checkpoint"] = str(checkpoint.resolve())
    for name in ("dataset", "eval_dataset"):
        if name in values:
            values[name] = _travelling(values[name], origin, staging, files)
    if "evals" in values:
        values["evals"] = tuple(
            evaluation.changed(dataset=_travelling(evaluation.dataset, origin, staging, files))
            for evaluation in config.evals
        )
    run = RunSpec(**values)
    files.update(capture(codes_in(run), origin, config.source_include).files)
    origins = origins_of(run, user_paths)
    origins.update(dict.fromkeys(_filled_in(config, run), "planner"))
    return Definition(run, origins, files)


def _filled_in(config: RunSpec, run: RunSpec) -> Iterator[str]:
    """Paths of what was worked out here, not given: where rows lie now, and hashes."""
    pairs = [("dataset", config.dataset, run.dataset)]
    pairs += [("eval_dataset", config.eval_dataset, run.eval_dataset)]
    for index, (given, made) in enumerate(zip(config.evals, run.evals, strict=True)):
        pairs.append((f"evals.{index}.dataset", given.dataset, made.dataset))
    for path, before, after in pairs:
        if before is None or after is None:
            continue
        for name in ("path", "sha256"):
            if name in after.model_fields_set - before.model_fields_set:
                yield f"{path}.{name}"


def codes_in(value: Any) -> Iterator[Code]:
    """Every reference to code in a definition."""
    if isinstance(value, Code):
        yield value
    elif isinstance(value, Settings):
        for name in type(value).model_fields:
            yield from codes_in(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from codes_in(item)


def _model(name: str, folder: Path) -> str:
    """The name, or the absolute path where it names a file or folder beside the definition."""
    if name in CATALOGUE or find(name) is not None:
        return name
    place = folder / Path(name).expanduser()
    return str(place.resolve()) if place.exists() else name


def _travelling(dataset: Any, origin: Origin, staging: Path, files: Files) -> Any:
    """The dataset as the job finds it; what has to travel for that is added to `files`."""
    if isinstance(dataset, RowsDataset):
        written = write_rows(dataset, staging)
        files[f"data/{written.path}"] = staging / written.path
        return written.changed(path=f"data/{written.path}")
    if isinstance(dataset, FileDataset):
        return _travelling_file(dataset, origin, files)
    if isinstance(dataset, HarborDataset) and dataset.git is None:
        place = origin.folder / Path(dataset.path).expanduser()
        return dataset.changed(path=str(place.resolve()))
    if isinstance(dataset, HuggingFaceDataset):
        place = origin.folder / Path(dataset.path).expanduser()
        return dataset.changed(path=str(place.resolve())) if place.is_dir() else dataset
    return dataset


def _travelling_file(dataset: FileDataset, origin: Origin, files: Files) -> FileDataset:
    place = (origin.folder / Path(dataset.path).expanduser()).resolve()
    try:
        size, sha256 = place.stat().st_size, dataset.sha256 or file_sha256(place)
    except OSError as error:
        raise DataError(
            f"the dataset {dataset.path} cannot be read: {error.strerror} ({place})",
            fix="give the path relative to the file that defines the run",
        ) from None
    if size > LARGE_FILE_BYTES:
        return dataset.changed(path=str(place), sha256=sha256)
    path = data_path(place, origin)
    files[path] = place
    return dataset.changed(path=path, sha256=sha256)
