"""An offline run of wandb: `offline-run-…/run-….wandb`.

The file is a LevelDB log (LevelDB's `log_format.md`) behind a header of seven bytes: blocks of
32 KiB, in them fragments of checksum, length and type. What the fragments make up are messages of
wandb's own protocol, parsed with its package.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training_gym.records.imports.points import Imported, Point
from training_gym.spec.errors import RecordsError

_BLOCK = 32 * 1024
_HEADER = struct.Struct("<4sHB")
_FRAGMENT = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def read_wandb(source: Path) -> Imported:
    """History and configuration of the `.wandb` file, or of the one in the folder."""
    from wandb.proto import wandb_internal_pb2

    path = source if source.is_file() else next(iter(sorted(source.rglob("*.wandb"))), None)
    if path is None:
        return Imported(())
    points: list[Point] = []
    config: dict[str, Any] = {}
    name, begun = "", 0.0
    for data in messages(path.read_bytes(), path):
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


def messages(data: bytes, path: Path) -> Iterator[bytes]:
    """The whole messages of a `.wandb` file; one torn at the end is left out."""
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[0] != b":W&B":
        raise RecordsError(f"{path} is no file of wandb", fix="name an offline run's folder")
    at, whole = _HEADER.size, b""
    while at + _FRAGMENT.size <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _FRAGMENT.size:  # too small for another fragment: padding
            at += left
            continue
        _, length, kind = _FRAGMENT.unpack_from(data, at)
        at += _FRAGMENT.size
        if at + length > len(data) or kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
            return
        whole = (
            data[at : at + length] if kind in (_FULL, _FIRST) else whole + data[at : at + length]
        )
        at += length
        if kind in (_FULL, _LAST):
            yield whole


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
