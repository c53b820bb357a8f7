"""Weights & Biases: a run of the same id, online, or offline under WANDB_MODE=offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from training_gym.records.sinks.feed import SinkRun


class WandbSink:
    """One `wandb` run; steps are batches."""

    name = "wandb"

    def __init__(self, run: SinkRun, project: str, folder: Path) -> None:
        """Start or go on with the run; its files lie below `folder`."""
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=project,
            id=run.run_id,
            name=run.name,
            config=dict(run.config),
            tags=list(run.tags),
            dir=str(folder),
            resume="allow",
            save_code=False,
            settings=wandb.Settings(console="off", x_disable_stats=True),
        )

    def metrics(self, step: int, time: float, values: Mapping[str, float]) -> None:
        """See `Sink`; the time becomes the metric `time`."""
        self._run.log({**values, "time": time}, step=step)

    def close(self) -> None:
        """See `Sink`."""
        self._run.finish()
