"""Sinks by name; each needs the tracker's own package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from training_gym.records.sinks.feed import Sink, SinkRun
from training_gym.records.sinks.mlflow import MlflowSink
from training_gym.records.sinks.tensorboard import TensorBoardSink
from training_gym.records.sinks.trackio import TrackioSink
from training_gym.records.sinks.wandb import WandbSink
from training_gym.spec.errors import RecordsError, did_you_mean

SINKS: dict[str, Callable[[SinkRun, str, Path], Sink]] = {
    "wandb": WandbSink,
    "trackio": TrackioSink,
    "tensorboard": TensorBoardSink,
    "mlflow": MlflowSink,
}


def open_sink(name: str, run: SinkRun, project: str, folder: Path) -> Sink:
    """The sink of this name.

    Args:
        name: a key of `SINKS`.
        run: what the tracker is told of the run.
        project: where in the tracker; MLflow calls it an experiment.
        folder: where trackers that write files put them.

    Raises:
        RecordsError: There is no such sink, or its package is not installed.
    """
    if name not in SINKS:
        raise RecordsError(
            f"no sink is called {name!r}", fix=did_you_mean(name, [*SINKS, "collector"])
        )
    try:
        return SINKS[name](run, project, folder)
    except ImportError as error:
        raise RecordsError(
            f"{name} needs the package {error.name or name}, which is not installed",
            fix=f"pip install {name}",
        ) from error
