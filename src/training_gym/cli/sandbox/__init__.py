"""`training-gym sandbox …`: isolated places for code to run in."""

from __future__ import annotations

import typer

from training_gym.cli.sandbox.size import size

app = typer.Typer(help="Isolated places for code to run in.")
app.command()(size)
