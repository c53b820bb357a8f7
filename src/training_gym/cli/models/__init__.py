"""`training-gym models …`: which models are known, fetching them, and what becomes of adapters."""

from __future__ import annotations

from training_gym.cli.lazy import Table, group

VERBS: Table = {
    "list": ("models.list:list_models", "List the models known by name."),
    "show": ("models.show:show", "Show a model's licence, size and origin."),
    "pull": ("models.pull:pull", "Fetch a model and print its folder."),
    "merge": (
        "models.merge:merge",
        "Add an adapter to its base model and write the result as a model of its own.",
    ),
    "export": (
        "models.merge:export",
        "Copy an adapter to a folder of its own that peft, vLLM and others load.",
    ),
}

app = group(VERBS, help="Models known by name, and adapters of them.")
