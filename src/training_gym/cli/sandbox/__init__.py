"""`training-gym sandbox …`: isolated places to run commands in."""

from __future__ import annotations

import typer

from training_gym.cli.sandbox.doctor import doctor
from training_gym.cli.sandbox.run import run
from training_gym.cli.sandbox.size import size

app = typer.Typer(help="Isolated places to run commands in.")
app.command()(run)
app.command()(doctor)
app.command()(size)
