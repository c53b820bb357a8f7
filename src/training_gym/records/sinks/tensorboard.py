"""TensorBoard: event files, written with its own writer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training_gym.records.sinks.feed import SinkRun


class TensorBoardSink:
    """Writes `<folder>/<project>/<run id>/events…`."""

    name = "tensorboard"

    def __init__(self, run: SinkRun, project: str, folder: Path) -> None:
        """Begin an event file; the definition becomes a text summary."""
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.plugins.text import metadata
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
        from tensorboard.util import tensor_util

        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        self._writer = EventFileWriter(str(folder / project / run.run_id))
        text = f"```json\n{json.dumps(dict(run.config), indent=2)}\n```"
        value = self._summary.Value(
            tag="definition",
            metadata=metadata.create_summary_metadata(display_name="definition", description=""),
            tensor=tensor_util.make_tensor_proto([text]),
        )
        self._writer.add_event(self._event(step=0, summary=self._summary(value=[value])))

    def metrics(self, step: int, time: float, values: Mapping[str, float]) -> None:
        """See `Sink`."""
        found = [self._summary.Value(tag=name, simple_value=v) for name, v in values.items()]
        self._writer.add_event(
            self._event(step=step, wall_time=time, summary=self._summary(value=found))
        )

    def close(self) -> None:
        """See `Sink`."""
        self._writer.flush()
        self._writer.close()
