"""`training-gym explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson, RunId

if TYPE_CHECKING:
    from training_gym.records.health.judging import Judged
    from training_gym.records.run_directory import RunDirectory


def explain(
    run_id: RunId,
    before: Annotated[
        int | None,
        typer.Option(min=1, metavar="STEP", help="Compare with this step, not the first."),
    ] = None,
    after: Annotated[
        int | None, typer.Option(min=1, metavar="STEP", help="Compare this step, not the last.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Let a model look for exploits in the 16 best paid episodes; the episodes are"
            " sent there. An OpenAI-compatible API such as http://127.0.0.1:8000/v1; its key:"
            " $TRAINING_GYM_JUDGE_KEY.",
        ),
    ] = None,
    judge_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model to ask at that address.")
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
    found = explained(files, before=before, after=after)  # refuses before a judge is paid
    judged = _judged(files, judge, judge_model)
    assessment = assess(files)
    alerts = [alert for alert in assessment.alerts if alert.state != "resolved"]
    if as_json:
        output.emit(
            "explain/1",
            **found.model_dump(mode="json"),
            verdict=assessment.verdict.model_dump(mode="json"),
            alerts=[alert.id for alert in alerts],
            judged=[one.model_dump(mode="json") for one in judged],
        )
        return
    output.data(found.summary)
    for part in found.parts:
        cited = f"  [{', '.join(part.episodes)}]" if part.episodes else ""
        output.data(f"- {part.text}{cited}")
    for alert in alerts:
        output.data(f"- alert {alert.id}: {alert.message}")
    for one in judged:
        output.data(f"- {one.verdict}: {one.why}  [{one.episode}, reward {one.reward:.3g}]")
    if any(part.episodes for part in found.parts):
        output.say(f"read the cited episodes: training-gym episodes {found.run_id}")


def _judged(files: RunDirectory, url: str | None, model: str | None) -> tuple[Judged, ...]:
    """What the judge says, if one was named."""
    import os

    from training_gym.cli.failures import UsageError

    if (url is None) != (model is None):
        raise UsageError("a judge is an address and a model", fix="give --judge and --judge-model")
    if url is None or model is None:
        return ()
    import httpx

    from training_gym.records.health.judging import TIMEOUT_S, Judge, judge_run

    with httpx.Client(timeout=TIMEOUT_S) as client:
        asked = Judge(url, model, os.environ.get("TRAINING_GYM_JUDGE_KEY", ""))
        return judge_run(files, asked, client=client)
