"""Watching a run to its end: live on a terminal, a plain line now and then elsewhere.

Ctrl-C reaches the run as a request: once it finishes its step and saves, twice it ends at once.
SIGTERM ends the watching only, and says so.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from training_gym.spec.errors import PlatformError

if TYPE_CHECKING:
    from training_gym.cli.progress import Progress
    from training_gym.runs import Run

POLL_S = 0.25
QUIET_S = 10.0
"""Least time between two plain lines."""


def follow(run: Run, *, timeout_s: float | None = None, forward_interrupts: bool = True) -> bool:
    """Show progress on stderr until the run has ended; returns whether Ctrl-C was pressed.

    Args:
        run: which run.
        timeout_s: raise `WaitTimeout` after so many seconds.
        forward_interrupts: hand Ctrl-C on to the run; otherwise it ends the watching.
    """
    from training_gym.cli.progress import Watch
    from training_gym.cli.runs.lookup import files_of

    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    watch = Watch(files_of(run))
    with _display() as display, _interrupts(forward_interrupts) as interrupts:
        handed_on = 0
        while run.status in ("queued", "running"):
            display.show(watch.look())
            if handed_on < min(2, interrupts.count):
                handed_on += 1
                _hand_on(run, display, now=handed_on > 1)
            if deadline is not None and time.monotonic() >= deadline:
                raise _still_running(run, timeout_s)
            if interrupts.terminated:
                display.say(f"the run goes on without this command; stop it: {_how_to_stop(run)}")
                raise SystemExit(128 + signal.SIGTERM)
            interrupts.wait(POLL_S)
        display.show(watch.look())
    return interrupts.count > 0


def _hand_on(run: Run, display: Display, *, now: bool) -> None:
    with suppress(PlatformError):  # it ended while Ctrl-C was pressed
        run.stop(now=now)
    if now:
        display.say("stopping at once")
    else:
        display.say("finishing this step, then saving a checkpoint; Ctrl-C again stops at once")


def _still_running(run: Run, timeout_s: float | None) -> Exception:
    from training_gym.cli.failures import WaitTimeout
    from training_gym.cli.output import number

    return WaitTimeout(
        f"run {run.id} has not ended within {number(timeout_s)} s",
        fix=f"wait longer, or stop it: {_how_to_stop(run)}",
    )


def _how_to_stop(run: Run) -> str:
    return f"training-gym runs stop {run.id}"


class Interrupts:
    """Counts Ctrl-C instead of being torn out of whatever is being done."""

    def __init__(self) -> None:
        """Nothing pressed yet."""
        self.count = 0
        self.terminated = False
        """Whether SIGTERM came, from a shell that ends or a limit of time."""
        self._pressed = threading.Event()

    def press(self, number: int, frame: FrameType | None) -> None:
        """Take note; a signal handler."""
        self.count += 1
        self._pressed.set()

    def terminate(self, number: int, frame: FrameType | None) -> None:
        """Take note; a signal handler."""
        self.terminated = True
        self._pressed.set()

    def wait(self, seconds: float) -> None:
        """Sleep, but wake when Ctrl-C is pressed."""
        if self._pressed.wait(seconds):
            self._pressed.clear()


@contextmanager
def _interrupts(forward: bool) -> Iterator[Interrupts]:
    interrupts = Interrupts()
    if not forward or threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before = signal.signal(signal.SIGINT, interrupts.press)
    terminated = signal.signal(signal.SIGTERM, interrupts.terminate)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, terminated)


class Display(Protocol):
    """Where progress is shown."""

    def show(self, progress: Progress) -> None:
        """Show where the run stands now."""
        ...

    def say(self, text: str) -> None:
        """Tell something that stays on the screen."""
        ...


class PlainDisplay:
    """For logs and pipes: a line for a new step, at most one every `QUIET_S` seconds."""

    def __init__(self) -> None:
        """Nothing shown yet."""
        self._step = 0
        self._next = 0.0

    def show(self, progress: Progress) -> None:
        """Write a line if there is something new to say and the last one is old enough."""
        last = progress.step == progress.num_steps
        if progress.step == self._step or (time.monotonic() < self._next and not last):
            return
        self._step = progress.step
        self._next = time.monotonic() + QUIET_S
        self.say(progress.words())

    def say(self, text: str) -> None:
        """Write a line."""
        from training_gym.cli import output

        output.say(text)


@contextmanager
def _display() -> Iterator[Display]:
    if not sys.stderr.isatty():
        yield PlainDisplay()
        return
    from training_gym.cli.live import LiveDisplay

    with LiveDisplay(sys.stderr) as display:
        yield display
