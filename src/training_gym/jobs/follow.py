"""Watching a run from the terminal that launched it: its metrics, and the user's Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from training_gym.jobs import control
from training_gym.records.readers import read_page
from training_gym.records.run_directory import RunDirectory
from training_gym.records.status import run_status

Progress = Callable[[dict[str, Any]], None]
"""Receives each record of the `metrics` stream, in order, once."""

ENDED = frozenset({"completed", "stopped", "failed", "lost"})
POLL_S = 0.25

SHOWN = ("reward", "loss", "sampled_tokens_per_second")
"""Metrics that a plain line shows: the first whose name is or begins with each of these."""


def follow(run: RunDirectory, progress: Progress, say: Callable[[str], None]) -> None:
    """Return when the run has ended; a first Ctrl-C asks it to stop, a second to stop at once."""
    cursor, interrupts = "", 0
    while True:
        try:
            ended = run_status(run) in ENDED  # before reading, so that nothing is missed after
            page = read_page(run, "metrics", since=cursor)
            for record in page.records:
                progress(record)
            cursor = page.cursor
            if ended:
                return
            time.sleep(POLL_S)
        except KeyboardInterrupt:
            interrupts += 1
            _forward(run, interrupts, say)


def _forward(run: RunDirectory, interrupts: int, say: Callable[[str], None]) -> None:
    if interrupts == 1:
        control.request(run, "stop")
        say("finishing the step, then a checkpoint; press Ctrl-C again to stop now")
        say(f"resume it with: training-gym runs resume {run.run_id}")
    else:
        control.request(run, "stop_now")
        say("stopping now; what came after the last checkpoint is lost")


def progress_lines(num_steps: int, say: Callable[[str], None]) -> Progress:
    """A line for each step, for people at a terminal."""

    def show(record: dict[str, Any]) -> None:
        values: dict[str, float] = record["values"]
        shown = [_first(values, name) for name in SHOWN]
        parts = [text for text in shown if text]
        if parts and record["batch"] is not None:
            say(f"step {record['batch']}/{num_steps}  {'  '.join(parts)}")

    return show


def _first(values: dict[str, float], prefix: str) -> str:
    names = [
        name for name in values if name == prefix or name.startswith((f"{prefix}_", f"{prefix}/"))
    ]
    return f"{names[0]} {values[names[0]]:.4g}" if names else ""


def to_stderr(text: str) -> None:
    """Talk to people: one line on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
