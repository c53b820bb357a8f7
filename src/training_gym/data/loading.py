"""From a dataset value to its tasks: read, deduplicate, order, limit, split."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Literal

from training_gym.data.build import RowDataset, TaskBuilder
from training_gym.data.cache import Parsed, cached
from training_gym.data.files import find_file, read_rows
from training_gym.data.generated import generated_candidates, generator_version
from training_gym.data.harbor.source import harbor_source
from training_gym.data.hub import hub_rows, open_hub
from training_gym.data.memory import memory_rows
from training_gym.data.order import on_side, shuffled
from training_gym.data.rows import Candidate, Row, Source
from training_gym.data.taskset import DataReport, TaskSet, hash_tasks
from training_gym.spec.datasets import (
    Dataset,
    FileDataset,
    GeneratedDataset,
    HarborDataset,
    HuggingFaceDataset,
)
from training_gym.spec.errors import DataError
from training_gym.spec.tasks import Task

Side = Literal["all", "train", "eval"]


def load(dataset: Dataset, *, seed: int, side: Side = "all", root: Path | str) -> TaskSet:
    """The tasks of one side of the dataset; paths in it are relative to `root`.

    The limit is taken over both sides, before the split. Raises `DataError` if the dataset or
    the side is empty.
    """
    source = _open(dataset, Path(root))
    found, report = cached(dataset, source, lambda: _collect(source.candidates()))
    if not found:
        raise DataError(
            f"{_describe(dataset)} has no rows", fix="check the path and the split, or add rows"
        )
    ordered = shuffled(found, "order", seed) if dataset.shuffle else list(found)
    kept = ordered[: dataset.limit]
    chosen = tuple(_choose(kept, dataset, side))
    report = report.changed(dropped_by_limit=len(ordered) - len(kept))
    return TaskSet(chosen, hash_tasks(chosen), report)


def _open(dataset: Dataset, root: Path) -> Source:
    if isinstance(dataset, GeneratedDataset):
        version = f"reasoning-gym {generator_version()}"
        return Source(version, lambda: generated_candidates(dataset))
    if isinstance(dataset, HarborDataset):
        return harbor_source(dataset, root)
    if isinstance(dataset, HuggingFaceDataset):
        table = open_hub(dataset, root)
        fingerprint = getattr(table, "_fingerprint", None)
        return Source(fingerprint, lambda: _built(dataset, hub_rows(dataset, table)))
    if isinstance(dataset, FileDataset):
        path, sha256 = find_file(dataset.path, root, dataset.sha256)
        return Source(
            f"{path.suffix} {sha256}",
            lambda: _built(dataset, read_rows(path, dataset.input_column)),
        )
    return Source(None, lambda: _built(dataset, memory_rows(dataset)))


def _built(
    dataset: RowDataset, rows: Generator[Row, None, None]
) -> Generator[Candidate, None, None]:
    # A file must be closed at the first bad row, not when the error is forgotten.
    with closing(rows):
        yield from map(TaskBuilder(dataset).build, rows)


def _collect(read: Generator[Candidate, None, None]) -> Parsed:
    """Tasks in the order of their rows, each once."""
    seen: dict[str, Candidate] = {}
    rows_read = 0
    left_out: set[str] = set()
    with closing(read) as candidates:
        for candidate in candidates:
            rows_read += 1
            left_out.update(candidate.left_out)
            first = seen.setdefault(candidate.task.id, candidate)
            if first.task != candidate.task:
                raise DataError(
                    f"{candidate.where} has the id {candidate.task.id!r} of another task "
                    f"({first.where})",
                    fix="give every task an id of its own",
                )
    distinct = list(seen.values())
    empty = sum(candidate.is_empty for candidate in distinct)
    if empty < len(distinct):
        distinct = [candidate for candidate in distinct if not candidate.is_empty]
    report = DataReport(
        rows_read=rows_read,
        duplicates=rows_read - len(seen),
        empty_prompts=empty,
        without_answer=sum(candidate.task.answer is None for candidate in distinct),
        columns_left_out=tuple(sorted(left_out)),
    )
    return tuple(candidate.task for candidate in distinct), report


def _choose(tasks: list[Task], dataset: Dataset, side: Side) -> list[Task]:
    if side == "all":
        return tasks
    fraction = dataset.eval_fraction
    if fraction == 0:
        if side == "train":
            return tasks
        raise DataError(
            f"{_describe(dataset)} holds nothing out for evaluation: eval_fraction is 0",
            fix="set eval_fraction, or give eval_dataset",
        )
    train = on_side(tasks, held_out=False, eval_fraction=fraction)
    held_out = on_side(tasks, held_out=True, eval_fraction=fraction)
    if not train or not held_out:
        lacking, change = ("evaluation", "raise") if train else ("training", "lower")
        raise DataError(
            f"eval_fraction={fraction:g} of {len(tasks)} tasks leaves none for {lacking}",
            fix=f"{change} eval_fraction, add rows, or give eval_dataset",
        )
    return train if side == "train" else held_out


def _describe(dataset: Dataset) -> str:
    if isinstance(dataset, FileDataset | HuggingFaceDataset | HarborDataset):
        return dataset.path
    if isinstance(dataset, GeneratedDataset):
        return f"the generator {dataset.name!r}"
    return "the list of rows"
