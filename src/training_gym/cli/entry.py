"""From arguments to an exit code: the boundary at which every error is reported, once."""

from __future__ import annotations

import errno
import itertools
import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import TyperException

    from training_gym.cli.failures import UsageError

_UNWRITABLE = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG)
_SUGGESTION = re.compile(r"^(.*?)\.? ?(?:Did you mean (.*)\?|\(Possible options: (.*)\))$", re.S)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return the exit code of the process."""
    import typer

    from training_gym.cli import output
    from training_gym.cli.app import app
    from training_gym.spec.errors import GymError

    output.open_streams()
    arguments = list(arguments) or ["--help"]
    as_json = wants_json(arguments)
    try:
        code = app(arguments, prog_name="training-gym", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except GymError as error:
        from training_gym.cli.failures import report

        return report(error, as_json=as_json)
    except typer.TyperException as error:
        from training_gym.cli.failures import report

        return report(_usage_error(error, arguments), as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        from training_gym.cli.failures import INTERRUPTED

        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            return _bug(error, as_json=as_json)
        _reader_left()
        return _stdout_refused(error)
    except Exception as error:  # noqa: BLE001 - the boundary of the program: ours, not the user's
        return _bug(error, as_json=as_json)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether `--json` stands among the options; errors of parsing are then JSON as well."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def _usage_error(error: TyperException, arguments: Sequence[str]) -> UsageError:
    from training_gym.cli.failures import UsageError

    text = error.format_message()
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "training-gym"
    verbs = getattr(getattr(context, "command", None), "commands", ())
    if verbs:  # it is a group that was given the option
        depth = len(where.split()) - 1
        leading = list(itertools.takewhile(lambda word: word not in verbs, arguments[depth:]))
        rest = arguments[depth + len(leading) :]
        if rest and getattr(error, "option_name", None) in leading:
            moved = shlex.join([*arguments[:depth], *rest, *leading])
            return UsageError(
                f"{' '.join(leading)} stands before the command",
                fix=f"options follow it: training-gym {moved}",
            )
    found = _SUGGESTION.match(text)
    if found is None:
        return UsageError(_lower(text), fix=f"see {where} --help")
    near = found.group(2) or found.group(3)
    return UsageError(_lower(found.group(1)), fix=f"did you mean {near}?")


def _lower(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line[:1].lower() + line[1:]


def _reader_left() -> int:
    """What `| head` does to us is not an error; keep the interpreter from flushing to nobody."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _stdout_refused(error: OSError) -> int:
    """Stdout leads to a full disk or a broken device: say so, once, where it can be read."""
    from training_gym.cli.failures import report
    from training_gym.spec.errors import RecordsError

    refused = RecordsError(
        f"stdout cannot be written: {error.strerror}", fix="free some space, or write elsewhere"
    )
    return report(refused, as_json=False)


def _bug(error: Exception, *, as_json: bool) -> int:
    import traceback

    from training_gym.cli.failures import Bug, report

    traceback.print_exception(error, file=sys.stderr)
    fault = Bug(f"{type(error).__name__}: {error}", fix="this is a bug: report the lines above")
    return report(fault, as_json=as_json)
