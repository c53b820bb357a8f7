"""`training-gym models show`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson


def show(
    name: Annotated[str, typer.Argument(help="Name, alias or Hugging Face id.")],
    as_json: AsJson = False,
) -> None:
    """Show a model's licence, size and origin."""
    from training_gym.cli import output
    from training_gym.cli.models.cards import summary
    from training_gym.models.known_models import get

    card = get(name)
    fields = summary(card) | {
        "aliases": list(card.aliases),
        "revision": card.revision,
        "terms": card.terms,
        "notes": card.notes,
        "packages": list(card.package.requirements) if card.package else [],
        "download_mb": card.package.download_mb if card.package else None,
    }
    if as_json:
        output.emit("models.show/1", **fields)
        return
    for field, value in fields.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        output.data(f"{field:<16}{'–' if shown in (None, '') else shown}")
