"""`training-gym runs …`: what runs there are, what they recorded, stopping and resuming them."""

from __future__ import annotations

import typer

from training_gym.cli.runs.ack import ack
from training_gym.cli.runs.annotate import note, tag
from training_gym.cli.runs.episodes import episodes
from training_gym.cli.runs.fork import fork
from training_gym.cli.runs.gc import gc
from training_gym.cli.runs.list import list_runs
from training_gym.cli.runs.logs import logs
from training_gym.cli.runs.metrics import metrics
from training_gym.cli.runs.pause import pause
from training_gym.cli.runs.resume import resume
from training_gym.cli.runs.show import show
from training_gym.cli.runs.stop import stop
from training_gym.cli.runs.wait import wait

app = typer.Typer(help="Look at runs, stop them, go on with them.")
app.command("list")(list_runs)
for verb in (show, metrics, episodes, logs, wait, stop, pause, resume, fork, ack, note, tag, gc):
    app.command()(verb)
