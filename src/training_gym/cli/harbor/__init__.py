"""`training-gym harbor …`: tasks in Harbor's format."""

from __future__ import annotations

import typer

from training_gym.cli.harbor.verify import verify

app = typer.Typer(help="Tasks in Harbor's format: check that they are sound.")
app.callback()(lambda: None)
app.command()(verify)
