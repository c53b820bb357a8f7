"""Trackio: the project's local database, or a Space where trackio is set up so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from training_gym.records.sinks.feed import SinkRun


class TrackioSink:
    """One `trackio` run; steps are batches."""

    name = "trackio"

    def __init__(self, run: SinkRun, project: str, folder: Path) -> None:
        """Start the run; trackio itself says where its database lies (TRACKIO_DIR)."""
        import trackio

        self._trackio = trackio
        trackio.init(
            project=project, name=run.run_id, config=dict(run.config), resume="allow", embed=False
        )

    def metrics(self, step: int, time: float, values: Mapping[str, float]) -> None:
        """See `Sink`; trackio notes the time by itself."""
        self._trackio.log(dict(values), step=step)

    def close(self) -> None:
        """See `Sink`."""
        self._trackio.finish()
