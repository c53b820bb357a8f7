"""`training-gym demo-run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson

if TYPE_CHECKING:
    from training_gym.records.demo import DemoShape


def demo_run(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[KIND]",
            help="healthy, reward_hacking, zero_variance, entropy_collapse, learning_rate, "
            "mismatch, dead_sandbox, stall, resumed, hostile, or all of them: all.",
        ),
    ] = "healthy",
    steps: Annotated[int, typer.Option(min=1, help="Batches.")] = 120,
    groups: Annotated[
        int, typer.Option(min=0, help="Groups in a batch; 0: record no episodes.")
    ] = 4,
    group_size: Annotated[int, typer.Option(min=1, help="Episodes in a group.")] = 8,
    metrics: Annotated[int, typer.Option(min=1, help="Metrics of a batch.")] = 40,
    answer_words: Annotated[
        int, typer.Option(min=1, help="About how long answers are at first.")
    ] = 60,
    price: Annotated[
        float | None, typer.Option(min=0, metavar="PER_HOUR", help="Record a cost.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same records.")] = 0,
    live: Annotated[
        bool, typer.Option("--live", help="Write a batch every --every seconds, until the end.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.01, help="Seconds between live batches.")] = 2.0,
    run_id: Annotated[
        str | None, typer.Option("--id", help="Id of the run; else made of kind and seed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a demo run, healthy or sick.

    Nothing is trained: what it records is invented, in the formats of real runs.
    """
    from training_gym.cli import output
    from training_gym.cli.failures import UsageError
    from training_gym.records.demo import KINDS, DemoShape
    from training_gym.spec.errors import did_you_mean

    kinds = KINDS if kind == "all" else tuple(known for known in KINDS if known == kind)
    if not kinds:
        raise UsageError(f"no demo run is called {kind!r}", fix=did_you_mean(kind, [*KINDS, "all"]))
    if len(kinds) > 1 and (live or run_id is not None):
        raise UsageError("--live and --id are for one run", fix="name a kind instead of all")
    for one in kinds:
        shape = DemoShape(
            kind=one,
            steps=steps,
            groups=groups,
            group_size=group_size,
            metrics=metrics,
            answer_words=answer_words,
            price_per_hour=price,
            seed=seed,
        )
        made, path = _write(shape, run_id, every if live else None)
        if as_json:
            output.emit("demo-run/1", run_id=made, kind=one, path=path)
        else:
            output.data(made)


def _write(shape: DemoShape, run_id: str | None, every_s: float | None) -> tuple[str, str]:
    from training_gym.cli import output
    from training_gym.records.demo import follow_demo_run, write_demo_run
    from training_gym.spec.home import runs_directory

    if every_s is None:
        run = write_demo_run(runs_directory(), shape, run_id=run_id)
        return run.run_id, str(run.path)
    batches = follow_demo_run(runs_directory(), shape, run_id=run_id, every_s=every_s)
    made, path = "", ""
    try:
        for run, step in batches:
            if not made:
                made, path = run.run_id, str(run.path)
                output.say(f"{made} is running; Ctrl-C stops it")
            output.say(f"step {step}/{shape.steps}")
    except KeyboardInterrupt:
        output.say("stopped")
    finally:
        batches.close()
    return made, path
