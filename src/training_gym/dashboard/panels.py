"""Custom panels: charts that a small TOML file adds to every run's first page.

`$TRAINING_GYM_HOME/dashboard/panels.toml`; the format is in `docs/dashboard.md`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from training_gym.dashboard.charts import ChartSpec
from training_gym.spec.errors import GymError, RecordsError, did_you_mean

MOST_PANELS = 40


def read_panels(path: Path) -> tuple[ChartSpec, ...]:
    """The file's panels, in order; raises `RecordsError` in two lines. No file: no panels."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordsError(f"cannot read {path}: {error}", fix="mend or remove it") from error
    except tomllib.TOMLDecodeError as error:
        raise RecordsError(f"{path} is not TOML: {error}", fix="mend that line") from error
    unknown = set(document) - {"panel"}
    if unknown:
        name = min(unknown)
        raise RecordsError(
            f"{path} has {name!r}, which is not known", fix=did_you_mean(name, ["panel"])
        )
    entries = document.get("panel", [])
    if not isinstance(entries, list) or len(entries) > MOST_PANELS:
        raise RecordsError(
            f"{path}: panel must be a list of at most {MOST_PANELS} tables",
            fix="begin each with a line [[panel]]",
        )
    return tuple(_panel(path, number, entry) for number, entry in enumerate(entries, 1))


def _panel(path: Path, number: int, entry: Any) -> ChartSpec:
    if not isinstance(entry, dict):
        raise RecordsError(f"{path}: panel {number} is no table", fix="begin it with [[panel]]")
    taken = {"key", "why"} & entry.keys()
    if taken:
        allowed = "title, metrics, kind and unit"
        raise RecordsError(f"{path}: panel {number} sets {min(taken)!r}", fix=f"it has {allowed}")
    try:
        return ChartSpec.read(
            {**entry, "key": f"panel-{number}", "why": "This run has none of these metrics."}
        )
    except GymError as error:
        raise RecordsError(f"{path}: panel {number}: {error.message}", fix=error.fix) from None
