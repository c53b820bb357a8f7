"""Which formats there are and what writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from training_gym.records.documents import storage_error
from training_gym.records.export.atif import write_atif
from training_gym.records.export.otlp import write_otlp
from training_gym.records.export.report import write_report
from training_gym.records.export.tables import write_csv, write_parquet
from training_gym.records.export.trace import write_trace
from training_gym.records.index import Index
from training_gym.spec.errors import RecordsError

Format = Literal["csv", "parquet", "chrome", "atif", "otlp", "html"]
FORMATS: tuple[Format, ...] = get_args(Format)

_WRITERS: dict[Format, Callable[[Index, str, Path], tuple[Path, ...]]] = {
    "csv": write_csv,
    "parquet": write_parquet,
    "chrome": write_trace,
    "atif": write_atif,
    "otlp": write_otlp,
    "html": write_report,
}


def export_run(index: Index, run_id: str, format: Format, folder: Path) -> tuple[Path, ...]:
    """Write a run into `folder`; the files that were written.

    `csv`, `parquet`: `metrics`, `episodes` and `spans`, each a table. `chrome`: `trace.json` for
    Perfetto and chrome://tracing. `atif`: a trajectory file for each episode. `otlp`: OpenTelemetry
    spans, a request a line. `html`: one page that needs nothing else. Raises `RecordsError` where
    it cannot be written, files that are there already included.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _WRITERS[format](index, run_id, folder)
    except FileExistsError as error:
        raise RecordsError(
            f"{error.filename} is there already", fix="name another folder with --to"
        ) from None
    except OSError as error:
        raise storage_error(error, folder) from error
