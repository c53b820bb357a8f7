"""Runs as small files: what the health rules read of them and nothing else, to be replayed.

One xz file a run: a line about the run, then a line for each record, `[stream, record]`, in which
numbers are rounded, episodes keep only the answer's text, and tokens only their count.
"""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training_gym.records.health import replay
from training_gym.records.health.feed import Feed
from training_gym.records.health.monitor import STREAMS
from training_gym.records.run_directory import Manifest, RunDirectory

KEPT = ("writer", "attempt", "seq", "batch", "optimizer_step", "policy_version")


def pack(run: RunDirectory, path: Path, **about: Any) -> int:
    """Write a run's compact form; returns its size in bytes."""
    lines = [json.dumps(item) for item in _compact(run)]
    unpacked = path.with_suffix(".run")
    manifest = run.manifest
    head = {"run": manifest.run, "run_id": manifest.run_id, **about}
    data = lzma.compress("\n".join([json.dumps(head), *lines]).encode(), preset=9)
    path.write_bytes(data)
    # What the rules say of the compact form is what tests hold them to.
    replica = unpack(path, unpacked)
    head["alerts"] = [
        [a.rule, a.environment, a.severity, a.state, a.first_step] for a in replay(replica)
    ]
    path.write_bytes(lzma.compress("\n".join([json.dumps(head), *lines]).encode(), preset=9))
    shutil.rmtree(unpacked)
    return path.stat().st_size


def read(path: Path) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """What is said about a packed run, and its records."""
    head, *lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    return json.loads(head), [tuple(json.loads(line)) for line in lines]


def unpack(path: Path, folder: Path) -> RunDirectory:
    """A run directory with the records of a packed run, in the folder `folder`."""
    head, records = read(path)
    manifest = Manifest(run_id=folder.name, created_at=1.0, run=head["run"])
    run = RunDirectory.create(folder, manifest)
    files: dict[Path, list[str]] = {}
    for stream, record in records:
        name = f"{record['writer']}-{record['attempt']}-0.jsonl"
        files.setdefault(run.streams / stream / name, []).append(json.dumps(record) + "\n")
    for place, lines in files.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(lines))
    return run


def _compact(run: RunDirectory) -> Iterator[tuple[str, dict[str, Any]]]:
    for stream, record in Feed(run, STREAMS).new():
        small = {"schema": 1, **{name: record[name] for name in KEPT}}
        small["time"], small["monotonic"] = round(record["time"], 2), round(record["monotonic"], 3)
        if stream == "episodes":
            if record["episode"]["stream"] != "train":
                continue
            small |= _episode(record)
        elif stream == "spans":
            if "component" not in record:
                continue
            small |= {name: record[name] for name in ("name", "component")}
            small |= {name: round(record[name], 3) for name in ("start", "end")}
        else:
            rest = {key: value for key, value in record.items() if key not in small}
            small |= _rounded({k: v for k, v in rest.items() if k not in ("task_means", "report")})
        yield stream, small


def _episode(record: dict[str, Any]) -> dict[str, Any]:
    episode = record["episode"]
    answer = [m for m in episode["messages"] if m["role"] == "assistant"][-1:]
    length = sum(
        count
        for path in record["trajectories"]
        for name, _, count in path["tokens"]["columns"]
        if name == "ids"
    )
    return {
        "episode": {
            "id": episode["id"],
            "group": episode["group"],
            "stream": "train",
            "task": {"id": episode["task"]["id"], "prompt": ""},
            "messages": [{"role": "assistant", "content": m["content"]} for m in answer],
            "outcome": {key: episode["outcome"][key] for key in ("status", "reason")},
            "score": _rounded(
                episode["score"] and {key: episode["score"][key] for key in ("value", "components")}
            ),
            "retries": episode["retries"],
        },
        "trajectories": [{"tokens": {"columns": [["ids", "u32", length]]}}] if length else [],
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value
