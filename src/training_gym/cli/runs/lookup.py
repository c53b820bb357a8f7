"""From what a person types to a run and its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training_gym.records.run_directory import RunDirectory
    from training_gym.runs import Run


def find_run(prefix: str) -> Run:
    """The run whose id begins with `prefix`; raises `RecordsError` if none or several do."""
    from training_gym.runs import Run

    return Run.from_id(prefix)


def files_of(run: Run) -> RunDirectory:
    """The run's directory as the readers of `records` take it."""
    from training_gym.records.run_directory import RunDirectory

    return RunDirectory(run.path)
