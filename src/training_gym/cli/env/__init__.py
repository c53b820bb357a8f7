"""`training-gym env …`: environments, played without training."""

from __future__ import annotations

import typer

from training_gym.cli.env.run import run

app = typer.Typer(help="Environments, played without training.")
app.command()(run)


@app.callback()
def root() -> None:
    """Keep `run` a command of its own while it is the only one."""
