"""`training-gym init`: the tutorials as starting points of one's own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from training_gym.cli.options import AsJson


def init(
    template: Annotated[
        str | None,
        typer.Argument(
            metavar="TEMPLATE",
            help="haiku, math, calculator, coding-agent and others; none: list them.",
        ),
    ] = None,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to write into; made where missing.")
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write a definition to start your own from.

    Files that exist are never overwritten.
    """
    from training_gym.cli import output
    from training_gym.cli.program import program
    from training_gym.cli.templates import TEMPLATES, find, write

    if template is None:
        listed = {name: entry.about for name, entry in TEMPLATES.items()}
        if as_json:
            output.emit("init.list/1", templates=listed)
        else:
            output.table(["template", "what it trains"], listed.items())
        return
    chosen = find(template)
    files = write(chosen, directory)
    definition = shlex.quote(str(files[0]))
    train = f"{program()} train {definition}"
    following = [f"{train} --dry-run", train]
    if as_json:
        output.emit(
            "init/1", template=template, files=[str(file) for file in files], next=following
        )
        return
    for file in files:
        output.data(str(file))
    output.say(f"see what it would do: {following[0]}")
    output.say(f"train: {following[1]}")
    output.say(f"needs: pip install 'training-gym[{','.join(('local', *chosen.extras))}]'")
