"""`training-gym doctor`: what this machine has, what is missing, and the command that mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from training_gym.cli.options import AsJson

if TYPE_CHECKING:
    from training_gym.cli.diagnosis import Finding


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has and what it lacks.

    Ends with the exit code of a failed check if something keeps every run from working.
    """
    from training_gym.cli import output
    from training_gym.cli.diagnosis import diagnose
    from training_gym.spec.errors import CheckError

    findings = diagnose()
    healthy = all(finding.state != "broken" for finding in findings)
    if as_json:
        output.emit(
            "doctor/1", healthy=healthy, findings=[finding.fields() for finding in findings]
        )
    else:
        output.table(
            ["", "what", "found"],
            [(_MARKS[finding.state], finding.name, finding.value) for finding in findings],
        )
        _prescribe(findings)
    if not healthy:
        raise typer.Exit(CheckError.exit_code)


_MARKS = {"good": "ok", "missing": "--", "broken": "!!"}


def _prescribe(findings: list[Finding]) -> None:
    from training_gym.cli import output

    for finding in findings:
        if finding.fix:
            output.say(f"{finding.name}: {finding.fix}")
