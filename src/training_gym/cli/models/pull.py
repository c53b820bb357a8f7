"""`training-gym models pull`."""

from __future__ import annotations

from typing import Annotated

import typer

from training_gym.cli.options import AsJson


def pull(
    name: Annotated[str, typer.Argument(help="Name, alias or Hugging Face id.")],
    as_json: AsJson = False,
) -> None:
    """Fetch a model and print its folder.

    Its hash is checked, and it is converted to safetensors once.
    """
    from training_gym.cli import output
    from training_gym.models.catalogue import resolve
    from training_gym.models.known_models import find

    card = find(name)
    folder = resolve(name, say=output.say)
    if as_json:
        output.emit("models.pull/1", name=card.name if card else name, path=str(folder))
    else:
        output.data(str(folder))
