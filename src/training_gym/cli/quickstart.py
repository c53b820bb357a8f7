"""`training-gym quickstart`: a real model learns something, on this machine, in minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson, Sets

if TYPE_CHECKING:
    from pathlib import Path

    from training_gym.launch import TrainConfig

TUTORIAL = "haiku.py"
TINY = "quickstart-tiny"
"""Folder of the random model that `--smoke` trains."""
SMOKE = (
    "recipe.num_steps=2",
    "recipe.prompts_per_batch=2",
    "recipe.group_size=2",
    "recipe.max_response_tokens=16",
    "evals.held_out.dataset.limit=4",
    "evals.held_out.samples=1",
)
"""What `--smoke` changes besides the model: every stage runs, nothing is learned."""


def quickstart(
    seed: Annotated[int, typer.Option(min=0, help="Seed of tasks and sampling.")] = 0,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Only try every stage, with a tiny random model.")
    ] = False,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Teach a small model to write haiku here and now.

    Held-out topics are written about before and after; the verdict follows from the difference.
    """
    from training_gym.cli import output
    from training_gym.cli.finish import finish
    from training_gym.cli.following import follow
    from training_gym.launch import apply_sets, load_definition, prepare, submit

    file = place_tutorial()
    changes = [f"recipe.seed={seed}", *(SMOKE if smoke else ()), *(sets or ())]
    config = apply_sets(load_definition(str(file)), changes)
    if smoke:
        config = config.changed(model=tiny_model())
    introduce(config, file)
    run = submit(prepare(config, say=output.say))
    output.say(f"run {run.id}")
    interrupted = follow(run)
    if run.status != "completed":
        finish(run, as_json=as_json, interrupted=interrupted)
        return
    from training_gym.cli.comparison import compare
    from training_gym.cli.quickstart_report import show, summary

    comparison = compare(run, evaluation=config.evaluations[0].name)
    show(comparison, run, smoke=smoke, on_stderr=as_json)
    if as_json:
        output.emit("quickstart/1", **summary(comparison, run, seed=seed))


def place_tutorial() -> Path:
    """The tutorial's file in the user's own folder, from where its source can travel."""
    from training_gym.cli.templates import content
    from training_gym.records.documents import storage_error
    from training_gym.spec.home import home

    file = home() / "quickstart" / TUTORIAL
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content(TUTORIAL))
    except OSError as error:
        raise storage_error(error, file) from error
    return file


def tiny_model() -> str:
    """The folder of a random model of a few thousand weights, made once."""
    from training_gym.models.weights.tiny import tiny_model as make
    from training_gym.spec.home import models_directory

    folder = models_directory() / TINY
    if not (folder / "config.json").exists():
        make(folder)
    return str(folder)


def introduce(config: TrainConfig, file: Path) -> None:
    """Say what is about to happen, and fetch the model while that is read."""
    from training_gym.cli import output
    from training_gym.models.catalogue import resolve

    output.say(f"the definition, yours to read and change: {file}")
    resolve(config.model, say=output.say)
    output.say("writing about held-out topics, then training, then writing about them again")
