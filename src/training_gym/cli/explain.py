"""`training-gym explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson, RunId


def explain(
    run_id: RunId,
    before: Annotated[
        int | None,
        typer.Option(min=1, metavar="STEP", help="Compare with this step, not the first."),
    ] = None,
    after: Annotated[
        int | None, typer.Option(min=1, metavar="STEP", help="Compare this step, not the last.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say why the reward moved or did not, citing episodes.

    Arithmetic on the run's records: components, lengths, truncation, tasks that flipped.
    """
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import files_of, find_run
    from training_gym.records.health import assess
    from training_gym.records.health.explanation import explain as explained

    files = files_of(find_run(run_id))
    found = explained(files, before=before, after=after)
    assessment = assess(files)
    alerts = [alert for alert in assessment.alerts if alert.state != "resolved"]
    if as_json:
        output.emit(
            "explain/1",
            **found.model_dump(mode="json"),
            verdict=assessment.verdict.model_dump(mode="json"),
            alerts=[alert.id for alert in alerts],
        )
        return
    output.data(found.summary)
    for part in found.parts:
        cited = f"  [{', '.join(part.episodes)}]" if part.episodes else ""
        output.data(f"- {part.text}{cited}")
    for alert in alerts:
        output.data(f"- alert {alert.id}: {alert.message}")
    if any(part.episodes for part in found.parts):
        output.say(f"read the cited episodes: training-gym runs episodes {found.run_id}")
