"""The tree of commands. Importing it loads typer and the verbs' signatures, nothing else."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from training_gym.cli import (
    alerts,
    dashboard,
    demo_run,
    doctor,
    explain,
    init,
    quickstart,
    setup,
    train,
)
from training_gym.cli.env import app as env
from training_gym.cli.harbor import app as harbor
from training_gym.cli.models import app as models
from training_gym.cli.runs import app as runs
from training_gym.cli.sandbox import app as sandbox
from training_gym.cli.views import (
    changes,
    compare,
    episodes,
    export,
    logs,
    metrics,
    schema,
    status,
    sync,
    timeline,
)

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command()(quickstart.quickstart)
app.command()(train.train)
for view in (
    status.status,
    metrics.metrics,
    episodes.episodes,
    timeline.timeline,
    logs.logs,
    compare.compare,
    changes.changes,
    export.export,
    schema.schema,
    sync.sync,
):
    app.command()(view)
app.command("import")(sync.import_)
app.add_typer(runs, name="runs")
app.command()(alerts.alerts)
app.command()(explain.explain)
app.add_typer(models, name="models")
app.add_typer(env, name="env")
app.add_typer(harbor, name="harbor")
app.add_typer(sandbox, name="sandbox")
app.command()(init.init)
app.command()(doctor.doctor)
app.command()(dashboard.dashboard)
app.command()(setup.setup)
app.command("demo-run")(demo_run.demo_run)


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
