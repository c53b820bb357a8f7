"""One line at the bottom of the terminal that keeps up with the run."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TextIO

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from training_gym.cli import progress as run_progress
from training_gym.cli.escapes import one_line
from training_gym.cli.output import console


class LiveDisplay:
    """A bar and the newest figures, redrawn in place and gone at the end."""

    def __init__(self, stream: TextIO) -> None:
        """Draw on `stream`, which is a terminal."""
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.description}", markup=False),
            console=console(stream),
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, progress: run_progress.Progress) -> None:
        """Redraw with these figures."""
        self._bar.update(
            self._task,
            total=progress.num_steps,
            completed=progress.step,
            description=one_line(progress.words()),
        )

    def say(self, text: str) -> None:
        """Write a line above the bar."""
        self._bar.console.print(Text(one_line(text)))
