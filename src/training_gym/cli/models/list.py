"""`training-gym models list`."""

from __future__ import annotations

from training_gym.cli.options import AsJson


def list_models(as_json: AsJson = False) -> None:
    """List the models known by name."""
    from training_gym.cli import output
    from training_gym.cli.models.cards import summary
    from training_gym.models.known_models import CATALOGUE

    found = [summary(card) for card in CATALOGUE.values()]
    if as_json:
        output.emit("models.list/1", models=found)
        return
    output.table(
        ["name", "parameters", "kind", "licence", "here", "hub id"],
        [
            (
                model["name"],
                f"{model['num_parameters'] / 1e6:.0f} M",
                model["kind"],
                model["licence"],
                "yes" if model["here"] else "no",
                model["hub_id"],
            )
            for model in found
        ],
    )
    output.say("any Hugging Face id, local folder or GGUF file works as a model, too")
