"""Every error a user can cause or mend: two lines, what happened and what to do.

```
GymError
├── SpecError          the definition is wrong (a field, a type, a value)
├── SourceError        code that cannot travel as source
├── DataError          tasks cannot be read or are unusable
├── ModelError         a model cannot be found, read or run
├── RewardError        a reward function misbehaved
├── EnvironmentFailure an environment misbehaved
├── DriftError         a harness rewrites what was sampled more often than allowed
├── CheckError         preflight found what would fail later
├── PlanError          it does not fit
├── EngineError        the engine refuses or failed
│   └── FormError      an answer cannot be held to the form asked for
├── PlatformError      the platform refuses or failed
├── RecordsError       a run's files are missing or unreadable
├── CheckpointError    a checkpoint is missing, damaged or does not belong to the run
└── SandboxError       a sandbox refused, failed or died (typed in spec.sandboxes)
```

Anything else that escapes is our bug and shows a traceback.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from types import TracebackType


class GymError(Exception):
    """What is wrong, with the offending value, and how to mend it."""

    exit_code = 1
    """Process exit status of a command that ends with this error."""

    def __init__(self, message: str, *, fix: str) -> None:
        """Keep both lines; `str(error)` joins them with a newline."""
        super().__init__(message, fix)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n{self.fix}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.fix))


def _rebuild(kind: type[GymError], message: str, fix: str) -> GymError:
    return kind(message, fix=fix)


class SpecError(GymError):
    """The definition itself is wrong."""

    exit_code = 2


class SourceError(GymError):
    """A function or class cannot be sent to another process as source."""

    exit_code = 2


class DataError(GymError):
    """Tasks cannot be read, or none is usable."""

    exit_code = 3


class ModelError(GymError):
    """A model cannot be found, read or run."""

    exit_code = 4


class RewardError(GymError):
    """A reward function raised, hung or returned what is not a reward."""

    exit_code = 5


class EnvironmentFailure(GymError):
    """An environment raised or broke its contract."""

    exit_code = 6


class DriftError(EnvironmentFailure):
    """Prompts depart from the recorded tokens more often than the run allows."""


class CheckError(GymError):
    """Preflight found something that would fail later.

    Its exit code is that of the error it foresees; 7 where it foresees several kinds.
    """

    exit_code = 7

    def __init__(self, message: str, *, fix: str, exit_code: int = 7) -> None:
        """Keep both lines and the code."""
        super().__init__(message, fix=fix)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_check, (self.message, self.fix, self.exit_code))


def _rebuild_check(message: str, fix: str, exit_code: int) -> CheckError:
    return CheckError(message, fix=fix, exit_code=exit_code)


class PlanError(GymError):
    """No plan fits the machine."""

    exit_code = 8


class EngineError(GymError):
    """The engine refuses the run or failed in it."""

    exit_code = 9


class FormError(EngineError):
    """An answer cannot be held to the form that was asked for."""


class PlatformError(GymError):
    """The platform refuses the job or lost it."""

    exit_code = 10


class RecordsError(GymError):
    """A run's files are missing or unreadable."""

    exit_code = 11


class CheckpointError(GymError):
    """A checkpoint is missing, damaged or belongs to another run."""

    exit_code = 12


class SandboxError(GymError):
    """A sandbox could not be had, failed or died."""

    exit_code = 13


_NAMED = 30
"""Of longer lists only the beginning is told."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`"did you mean 'x'?"`, or the list of what exists when nothing is near."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return "known: " + ", ".join(names[:_NAMED]) + more


def show_without_traceback() -> None:
    """Let a `GymError` that ends a script be two lines; everything else keeps its traceback.

    A hook that somebody else has set stays.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _report


def _report(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if isinstance(error, GymError):
        sys.stderr.write(f"error: {error.message}\nfix: {error.fix}\n")
    else:
        sys.__excepthook__(kind, error, traceback)
