"""`training-gym alerts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from training_gym.cli.options import AsJson, Limit, RunId
from training_gym.cli.runs.paging import Since

if TYPE_CHECKING:
    from training_gym.records.health import Alert, Assessment

FailOn = Annotated[
    Literal["warning", "critical"] | None,
    typer.Option(help="End with exit code 24 or 25 if the verdict is at least so bad."),
]


def alerts(
    run_id: RunId,
    fail_on: FailOn = None,
    since: Since = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show a run's health: the verdict, then its alerts.

    Open ones first, worst first, each with its evidence and with what to do.
    """
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import files_of, find_run
    from training_gym.records.health import assess

    found = assess(files_of(find_run(run_id)))
    chosen = _chosen(found, since)
    shown = chosen[:limit]
    if as_json:
        output.emit("alerts/1", **_fields(found, shown), omitted=len(chosen) - len(shown))
    else:
        output.data(found.verdict.sentence)
        for alert in shown:
            _show(alert)
        if len(chosen) > len(shown):
            output.say(f"{len(chosen) - len(shown)} alerts left out: raise --limit to see them")
    code = _exit_code(found, fail_on)
    if code:
        raise typer.Exit(code)


def _chosen(found: Assessment, since: str | None) -> list[Alert]:
    from training_gym.cli.runs.paging import time_of

    after = time_of(since)
    return [alert for alert in found.alerts if after is None or alert.updated_at > after]


def _fields(found: Assessment, shown: list[Alert]) -> dict[str, Any]:
    newest = max((alert.updated_at for alert in found.alerts), default=0.0)
    return {
        "run_id": found.run_id,
        "verdict": found.verdict.model_dump(mode="json"),
        "alerts": [{**alert.model_dump(mode="json"), **_times(alert)} for alert in shown],
        "cursor": _iso(newest),
    }


def _times(alert: Alert) -> dict[str, str]:
    names = ("opened_at", "updated_at", "worsened_at")
    return {name: _iso(getattr(alert, name)) for name in names}


def _iso(at: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")


def _show(alert: Alert) -> None:
    from training_gym.cli import output

    since = "" if alert.first_step is None else f" since step {alert.first_step}"
    where = f" in {alert.environment}" if alert.environment else ""
    output.data(f"\n{alert.state} {alert.severity}: {alert.message}{where}{since}")
    output.data(f"  id        {alert.id}")
    if alert.acknowledged_by:
        note = f": {alert.note}" if alert.note else ""
        output.data(f"  seen by   {alert.acknowledged_by}{note}")
    if alert.evidence:
        output.data(f"  evidence  episodes {', '.join(alert.evidence)}")
    if alert.state == "resolved":
        return
    for name, lines in (("perhaps", alert.explanations), ("then", alert.next)):
        for place, line in enumerate(lines):
            output.data(f"  {name if place == 0 else '':<10}{line}")
    if alert.source:
        output.data(f"  source    {alert.source}")


def _exit_code(found: Assessment, fail_on: str | None) -> int:
    from training_gym.cli.failures import HEALTH_CRITICAL, HEALTH_DEGRADED

    if fail_on is not None and found.verdict.level == "critical":
        return HEALTH_CRITICAL
    if fail_on == "warning" and found.verdict.level == "degraded":
        return HEALTH_DEGRADED
    return 0
