"""What the command line tells of a model, from its card and from this machine's folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training_gym.models.cards import ModelCard


def summary(card: ModelCard) -> dict[str, Any]:
    """The fields of one entry of `models.list/1`."""
    from training_gym.models.store import stored

    here = stored(card.name)
    return {
        "name": card.name,
        "title": card.title,
        "hub_id": card.hub_id,
        "kind": card.kind,
        "family": card.architecture.family,
        "num_parameters": card.architecture.num_parameters,
        "licence": card.licence,
        "here": here is not None,
        "path": None if here is None else str(here),
    }
