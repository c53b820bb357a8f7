"""Arguments and options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[
    bool, typer.Option("--json", help="Write JSON, one object on a line, to stdout.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one value of the definition."),
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Run id, or a unique beginning of it.")]
Limit = Annotated[int, typer.Option(min=1, help="Show at most so many.")]
