"""MLflow: an experiment's run on the tracking server that MLflow is set up for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training_gym.records.index.differences import leaves
from training_gym.records.sinks.feed import SinkRun

TAG = "training_gym.run_id"
LONGEST = 500
"""Characters of a parameter that MLflow takes."""


class MlflowSink:
    """One `mlflow` run, found again by its tag; steps are batches."""

    name = "mlflow"

    def __init__(self, run: SinkRun, project: str, folder: Path) -> None:
        """Create experiment and run where they are missing; MLFLOW_TRACKING_URI says where."""
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.tracking import MlflowClient

        self._metric: Any = Metric
        self._client = MlflowClient()
        known = self._client.get_experiment_by_name(project)
        experiment = (
            known.experiment_id if known is not None else self._client.create_experiment(project)
        )
        found = self._client.search_runs(
            [experiment], filter_string=f"tags.`{TAG}` = '{run.run_id}'", max_results=1
        )
        if found:
            self._id = found[0].info.run_id
            return
        made = self._client.create_run(experiment, run_name=run.name, tags={TAG: run.run_id})
        self._id = made.info.run_id
        values = {path: json.dumps(value)[:LONGEST] for path, value in leaves(run.config).items()}
        params = [Param(path, value) for path, value in values.items() if path]
        for start in range(0, len(params), 100):
            self._client.log_batch(self._id, params=params[start : start + 100])
        if run.tags:
            self._client.log_batch(self._id, tags=[RunTag("tags", ", ".join(run.tags))])

    def metrics(self, step: int, time: float, values: Mapping[str, float]) -> None:
        """See `Sink`."""
        found = [self._metric(name, v, int(time * 1000), step) for name, v in values.items()]
        for start in range(0, len(found), 1000):
            self._client.log_batch(self._id, metrics=found[start : start + 1000])

    def close(self) -> None:
        """See `Sink`."""
        self._client.set_terminated(self._id)
