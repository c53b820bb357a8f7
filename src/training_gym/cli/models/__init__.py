"""`training-gym models …`: which models are known, what is known of them, and fetching them."""

from __future__ import annotations

import typer

from training_gym.cli.models.list import list_models
from training_gym.cli.models.pull import pull
from training_gym.cli.models.show import show

app = typer.Typer(help="Models known by name: list and fetch them.")
app.command("list")(list_models)
app.command()(show)
app.command()(pull)
