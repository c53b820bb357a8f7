"""`training-gym models …`: which models are known, fetching them, and what becomes of adapters."""

from __future__ import annotations

import typer

from training_gym.cli.models.list import list_models
from training_gym.cli.models.merge import export, merge
from training_gym.cli.models.pull import pull
from training_gym.cli.models.show import show

app = typer.Typer(help="Models known by name, and adapters of them.")
app.command("list")(list_models)
app.command()(show)
app.command()(pull)
app.command()(merge)
app.command()(export)
