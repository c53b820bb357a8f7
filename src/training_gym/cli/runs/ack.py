"""`training-gym runs ack`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson, RunId

if TYPE_CHECKING:
    from training_gym.records.health import Alert


def ack(
    run_id: RunId,
    alerts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ALERT]...", help="Alert ids or rules; none: all open ones."),
    ] = None,
    note: Annotated[str, typer.Option(help="What you know about it.")] = "",
    by: Annotated[str | None, typer.Option(help="Who has seen it; the user name if left out.")] = (
        None
    ),
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Take the acknowledgement back.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Acknowledge alerts: they stay listed, but as seen.

    It is kept in the run's own files, and holds until the alert worsens.
    """
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import files_of, find_run
    from training_gym.records.health import acknowledge, assess

    run = find_run(run_id)
    files = files_of(run)
    chosen = _chosen(list(assess(files).alerts), alerts or [], withdraw=withdraw)
    who = by or _user()
    if chosen:
        acknowledge(files, chosen, by=who, note=note, withdraw=withdraw)
    if as_json:
        output.emit(
            "runs.ack/1", run_id=run.id, alerts=chosen, by=who, note=note, withdrawn=withdraw
        )
        return
    for alert in chosen:
        output.data(alert)
    if not chosen:
        output.say("there is nothing to acknowledge")


def _chosen(known: list[Alert], asked: list[str], *, withdraw: bool) -> list[str]:
    from training_gym.cli.failures import UsageError
    from training_gym.spec.errors import did_you_mean

    state = "acknowledged" if withdraw else "open"
    if not asked:
        return [alert.id for alert in known if alert.state == state]
    found = []
    for word in asked:
        matching = [alert.id for alert in known if word in (alert.id, alert.rule)]
        if not matching:
            names = {alert.id for alert in known} | {alert.rule for alert in known}
            fix = did_you_mean(word, names) if names else "this run has no alerts"
            raise UsageError(f"no alert is called {word!r}", fix=fix)
        found += [alert for alert in matching if alert not in found]
    return found


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"
