"""`training-gym changes`."""

from __future__ import annotations

from training_gym.cli.options import AsJson, Limit, RunId
from training_gym.cli.runs.paging import Since, cursor_or_time, marked


def changes(
    run_id: RunId,
    since: Since = None,
    limit: Limit = 200,
    as_json: AsJson = False,
) -> None:
    """Tell what is new in a run since a cursor or a time.

    A call without --since gives a cursor to begin with. Events, metrics, episodes, alerts and
    evaluations come at most --limit of each at a time.
    """
    from training_gym.cli import output
    from training_gym.cli.views.common import emit_value, open_index, run_id_of

    cursor, moment = cursor_or_time(since)
    found = open_index().changes(
        run_id_of(run_id), cursor if moment is None else moment, limit=limit
    )
    found = found.changed(cursor=marked(found.cursor))
    if as_json:
        emit_value("changes/1", found)
        return
    output.data(f"{found.run.run_id}  {found.run.verdict}")
    if found.reset:
        output.say("the cursor no longer holds: begin anew from this one")
    for metric in found.metrics:
        values = ", ".join(f"{n} {output.number(v)}" for n, v in list(metric.values.items())[:6])
        output.data(f"batch {metric.batch}: {values}")
    for kind, records in (("event", found.events), ("alert", found.alerts)):
        for record in records:
            output.data(f"{kind}: {record.fields.get('kind') or record.fields.get('message')}")
    if found.episodes:
        output.data(f"{len(found.episodes)} episodes")
    output.say(f"go on with --since {found.cursor}")
