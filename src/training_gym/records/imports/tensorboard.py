"""TensorBoard's event files, read by its own loader, every point."""

from __future__ import annotations

from pathlib import Path

from training_gym.records.imports.points import Imported, Point


def read_tensorboard(folder: Path) -> Imported:
    """Scalars of all event files below a folder, old and new style."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util import tensor_util

    points = []
    for path in sorted(folder.rglob("*tfevents*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                number = None
                if value.HasField("simple_value"):
                    number = float(value.simple_value)
                elif value.HasField("tensor"):
                    array = tensor_util.make_ndarray(value.tensor)
                    if array.dtype.kind in "fiu" and array.size == 1:
                        number = float(array.reshape(-1)[0])
                if number is not None:
                    points.append(Point(value.tag, event.step, event.wall_time, number))
    return Imported(tuple(points), name=folder.name)
