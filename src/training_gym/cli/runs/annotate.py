"""`training-gym runs note` and `training-gym runs tag`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson, RunId


def note(
    run_id: RunId,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The note; without one, show all.")
    ] = None,
    remove: Annotated[
        str | None, typer.Option(metavar="NOTE", help="Take the note of this id back.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a note on a run, or show its notes.

    Notes lie in the run's own files.
    """
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import files_of, find_run
    from training_gym.cli.views.common import moment, open_index
    from training_gym.records.annotations import add_note, remove_note

    run = find_run(run_id)
    if remove is not None:
        remove_note(files_of(run), remove)
    if text is not None:
        add_note(files_of(run), text)
    notes = open_index().overview(run.id).notes
    if as_json:
        output.emit("runs.note/1", run_id=run.id, notes=[one.model_dump() for one in notes])
        return
    for one in notes:
        output.data(f"{one.id} · {moment(one.time)} · {one.by}")
        output.data(one.text)
    if not notes:
        output.say("no notes yet")


def tag(
    run_id: RunId,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="Tags to add.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Take it off; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tag a run, or show its tags."""
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import files_of, find_run
    from training_gym.cli.views.common import open_index
    from training_gym.records.annotations import add_tag, remove_tag, require_tags

    run = find_run(run_id)
    require_tags(files_of(run), remove or ())  # all or nothing
    for one in tags or ():
        add_tag(files_of(run), one)
    for one in remove or ():
        remove_tag(files_of(run), one)
    known = open_index().overview(run.id).row.tags
    if as_json:
        output.emit("runs.tag/1", run_id=run.id, tags=list(known))
        return
    for one in known:
        output.data(one)
