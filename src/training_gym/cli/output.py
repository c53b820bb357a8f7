"""Data goes to stdout, talk to stderr; JSON is one object on one line, its schema versioned."""

from __future__ import annotations

import io
import json
import math
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_gym.cli.escapes import one_line, visible

if TYPE_CHECKING:
    from rich.console import Console


def open_streams() -> None:
    """Make stdout and stderr take any text: escape what they cannot encode, drop if closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # Open as long as the process, as the stream it stands for would be.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def emit(schema: str, /, **fields: Any) -> None:
    """Write one JSON object on one line; `schema` is a key of `cli.schemas.SCHEMAS`."""
    write_json({"schema": schema, **fields})


def write_json(value: dict[str, Any]) -> None:
    """Write one line of strict ASCII JSON; NaN and infinities become strings."""
    sys.stdout.write(json.dumps(_finite(value), allow_nan=False, default=str) + "\n")
    sys.stdout.flush()


def data(text: str) -> None:
    """Write a line of data for people, terminal escapes shown."""
    sys.stdout.write(visible(text) + "\n")


def say(text: str) -> None:
    """Tell the person at the terminal something that is not data."""
    sys.stderr.write(visible(text) + "\n")
    sys.stderr.flush()


@contextmanager
def patience(text: str, *, after_s: float = 3.0) -> Iterator[None]:
    """Say `text` where what is done takes longer than `after_s`: silence looks like a hang."""
    timer = threading.Timer(after_s, say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows for people: aligned on a terminal, tab-separated and uncut in a pipe."""
    cells = [[one_line(_cell(value)) for value in row] for row in rows]
    if not sys.stdout.isatty():
        for row in [list(columns), *cells]:
            sys.stdout.write("\t".join(row) + "\n")
        return
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in cells:
        drawn.add_row(*(Text(cell) for cell in row))
    console(sys.stdout).print(drawn)


def console(stream: Any) -> Console:
    """A rich console that draws on `stream` and interprets nothing in the text it is given."""
    from rich.console import Console

    return Console(file=stream, markup=False, highlight=False, emoji=False, soft_wrap=False)


def number(value: object, digits: int = 3) -> str:
    """A number for people; an absent one is a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def span(seconds: float) -> str:
    """A duration for people: `42 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def short_path(path: Path | str) -> str:
    """A path for people: below their home it begins with `~`."""
    try:
        return str(Path("~") / Path(path).relative_to(Path.home()))
    except ValueError:
        return str(path)


def value_at(document: Any, path: str) -> Any:
    """The value that a dotted path leads to in plain data; list entries are named by number."""
    here = document
    for part in path.split("."):
        if isinstance(here, list) and part.isdecimal() and int(part) < len(here):
            here = here[int(part)]
        elif isinstance(here, dict):
            here = here.get(part)
        else:
            return None
    return here


def _cell(value: object) -> str:
    return number(value) if value is None or isinstance(value, float) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value
