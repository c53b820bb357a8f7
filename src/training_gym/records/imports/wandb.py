"""An offline run of wandb: `offline-run-…/run-….wandb`, read with wandb's own store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from training_gym.records.imports.points import Imported, Point


def read_wandb(source: Path) -> Imported:
    """History and configuration of the `.wandb` file, or of the one in the folder."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    path = source if source.is_file() else next(iter(sorted(source.rglob("*.wandb"))), None)
    if path is None:
        return Imported(())
    store = DataStore()
    store.open_for_scan(str(path))
    points: list[Point] = []
    config: dict[str, Any] = {}
    name, begun = "", 0.0
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            name = record.run.display_name or record.run.run_id
            begun = record.run.start_time.ToMicroseconds() / 1e6
            config |= {i.key: json.loads(i.value_json) for i in record.run.config.update if i.key}
        elif kind == "history":
            points += _points(record.history, begun)
    return Imported(tuple(points), name=name, config=config)


def _points(history: Any, begun: float) -> list[Point]:
    values = {
        item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in history.item
    }
    step = int(values.get("_step", history.step.num))
    moment = float(values.get("_timestamp", begun))
    return [
        Point(name, step, moment, float(value))
        for name, value in values.items()
        if not name.startswith("_")
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    ]
