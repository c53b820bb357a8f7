"""The tree of commands. Importing it loads typer and a table, nothing else."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from training_gym.cli.lazy import Table, group

VERBS: Table = {
    "quickstart": ("quickstart:quickstart", "Teach a small model to write haiku here and now."),
    "train": ("train:train", "Train what a file defines."),
    "status": ("views.status:status", "Say how runs are: the verdict first."),
    "metrics": (
        "views.metrics:metrics",
        "Show curves: each metric over the run, reduced to a few points that keep its extremes.",
    ),
    "episodes": ("views.episodes:episodes", "Find episodes, or show one whole."),
    "timeline": ("views.timeline:timeline", "Show where the time of batches went, as measured."),
    "logs": ("views.logs:logs", "Find log lines: the newest that match, oldest first."),
    "compare": (
        "views.compare:compare",
        "Set runs side by side: what they reached and how their definitions differ.",
    ),
    "changes": ("views.changes:changes", "Tell what is new in a run since a cursor or a time."),
    "export": ("views.export:export", "Write a run in another format."),
    "schema": ("views.schema:schema", "Write the JSON Schema of what a command's --json writes."),
    "sync": (
        "views.sync:sync",
        "Hand a run's metrics to another tracker, or its records to a collector.",
    ),
    "import": (
        "views.sync:import_",
        "Take over the numbers of a TensorBoard or wandb offline run, to compare with.",
    ),
    "alerts": ("alerts:alerts", "Show a run's health: the verdict, then its alerts."),
    "explain": ("explain:explain", "Say why the reward moved or did not, citing episodes."),
    "init": ("init:init", "Write a definition to start your own from."),
    "doctor": ("doctor:doctor", "Say what this machine has and what it lacks."),
    "dashboard": ("dashboard:dashboard", "Show runs in the browser, live."),
    "setup": ("setup:setup", "Say what this machine has and lacks, then open the dashboard."),
    "collect": (
        "collect:collect",
        "Take the records of runs on other machines, as they are written.",
    ),
    "demo-run": ("demo_run:demo_run", "Write a demo run, healthy or sick."),
    "runs": ("runs:app", "Look at runs, stop them, go on with them."),
    "models": ("models:app", "Models known by name, and adapters of them."),
    "env": ("env:app", "Environments, played without training."),
    "harbor": ("harbor:app", "Tasks in Harbor's format: check that they are sound."),
    "sandbox": ("sandbox:app", "Isolated places to run commands in."),
}

app = group(
    VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        from training_gym import __version__

        sys.stdout.write(f"training-gym {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Reinforcement-learning post-training of language models: one file, any computer."""
