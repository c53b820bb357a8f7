"""How a command ends: the exit codes, and errors as two lines or one JSON object."""

from __future__ import annotations

import sys
from types import ModuleType

from training_gym.cli.output import say, write_json
from training_gym.spec import errors
from training_gym.spec.errors import GymError

OK = 0
USAGE = 2
RUN_FAILED = 20
RUN_STOPPED = 21
RUN_LOST = 22
WAIT_TIMEOUT = 23
HEALTH_DEGRADED = 24
HEALTH_CRITICAL = 25
ENDED_BEFORE = 26
UNSOUND = 27
BUG = 70
INTERRUPTED = 130

MEANINGS: dict[int, str] = {
    OK: "done; for `train` and `runs wait`: the run completed",
    RUN_FAILED: "the run failed and the fault is not known to be the user's: see its logs",
    RUN_STOPPED: "the run was stopped before its last step; it can be resumed",
    RUN_LOST: "the run's process vanished without a word; it can be resumed",
    WAIT_TIMEOUT: "`--timeout` passed before the run ended; the run goes on",
    HEALTH_DEGRADED: "`alerts --fail-on warning`, `status --exit-code`: the verdict is degraded",
    HEALTH_CRITICAL: "`alerts --fail-on`, `status --exit-code`: the verdict is critical",
    ENDED_BEFORE: "the run ended before what `--until` waits for came true",
    UNSOUND: "`harbor verify` found a task that is not sound, or could not run it",
    BUG: "a fault of Training Gym itself: a traceback is on stderr",
    INTERRUPTED: "Ctrl-C",
}
"""Exit codes that no error class carries; the others stand in `GymError.exit_code`."""


class UsageError(GymError):
    """The command line itself is wrong."""

    exit_code = USAGE


class RunFailed(GymError):
    """The run a command waited for failed."""

    exit_code = RUN_FAILED

    def __init__(
        self,
        message: str,
        *,
        fix: str,
        run_id: str,
        kind: str | None = None,
        exit_code: int | None = None,
    ) -> None:
        """`kind` and `exit_code` are those of the error inside the run, where it reported one."""
        super().__init__(message, fix=fix)
        self.run_id = run_id
        self.kind = kind or type(self).__name__
        self.exit_code = exit_code or type(self).exit_code


class RunLost(RunFailed):
    """The process of the run a command waited for vanished."""

    exit_code = RUN_LOST


class WaitTimeout(GymError):
    """The run did not end in the time given."""

    exit_code = WAIT_TIMEOUT


class EndedBefore(GymError):
    """The run ended before what a command waited for came true."""

    exit_code = ENDED_BEFORE


class Bug(GymError):
    """A fault of Training Gym itself."""

    exit_code = BUG


def report(error: GymError, *, as_json: bool) -> int:
    """Tell what went wrong, on stderr and with `--json` on stdout too; returns the exit code."""
    if as_json:
        told = {
            "type": getattr(error, "kind", type(error).__name__),
            "message": error.message,
            "fix": error.fix,
            "exit_code": error.exit_code,
            "run_id": getattr(error, "run_id", None),
        }
        write_json({"schema": "error/1", "error": told})
    say(f"error: {_folded(error.message)}\nfix: {_folded(error.fix)}")
    return error.exit_code


def exit_codes() -> dict[int, str]:
    """Every exit code and what it means, for the reference."""
    meanings = dict(MEANINGS)
    for kind in [*_kinds(errors), *_kinds(sys.modules[__name__])]:
        if kind.exit_code in MEANINGS:
            continue
        meaning = f"`{kind.__name__}`: {(kind.__doc__ or '').splitlines()[0]}"
        known = meanings.get(kind.exit_code)
        meanings[kind.exit_code] = meaning if known is None else f"{known} {meaning}"
    return dict(sorted(meanings.items()))


def _kinds(module: ModuleType) -> list[type[GymError]]:
    """The error classes that a module defines, in its order."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, GymError)
        and value.__module__ == module.__name__
    ]


def _folded(text: str) -> str:
    """One line: a message that carries a user's newlines is still one of two lines."""
    return " ".join(text.split("\n"))
