"""The documents of demo runs: manifest, environment, source, attempts and how they ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training_gym.records.checkpoints import CheckpointInfo, Position, write_checkpoint
from training_gym.records.demo.shape import MEANINGS, DemoShape
from training_gym.records.documents import write_document
from training_gym.records.processes import ProcessIdentity, this_process
from training_gym.records.results import Exit, StoppedBy, write_exit, write_result
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.code import Code
from training_gym.spec.datasets import FileDataset
from training_gym.spec.episodes import Counters
from training_gym.spec.recipe import AdamW, CheckpointPolicy, Recipe
from training_gym.spec.rewards import RewardPart, WeightedReward
from training_gym.spec.run import Eval, RunSpec

SOURCE = '''\
"""A demo run: nothing here was trained. See training-gym demo-run --help."""


def correct(task, completion):
    return float(completion.rstrip(".").endswith(str(task.answer)))


def form(task, completion):
    return 0.1 if "The answer is" in completion else 0.0
'''
HOSTILE_NAME = "<img src=x onerror=alert(1)>\x1b[31m"


def create(runs: Path, run_id: str, shape: DemoShape, created_at: float) -> RunDirectory:
    """The run's folder with everything a launcher writes."""
    spec = definition(shape)
    chosen = ("model", "recipe.num_steps", "recipe.optimizer.learning_rate")
    manifest = Manifest(
        run_id=run_id,
        created_at=created_at,
        name=HOSTILE_NAME if shape.kind == "hostile" else f"demo {shape.kind}",
        tags=("demo", shape.kind),
        run=spec.model_dump(mode="json"),
        origins=dict.fromkeys(chosen, "user"),
        training_gym="demo",
    )
    run = RunDirectory.create(runs / run_id, manifest)
    run.source.mkdir(exist_ok=True)
    (run.source / "demo.py").write_text(SOURCE)
    run.write_environment(
        {
            "python": "3.12.0",
            "packages": {"training-gym": "demo"},
            "machine": {"cpu_cores": 16, "memory_gib": 128.0, "platform": "linux"},
        }
    )
    return run


def definition(shape: DemoShape) -> RunSpec:
    """What the run seems to have been launched with."""
    parts = (
        RewardPart(name="correct", reward=Code(ref="demo:correct")),
        RewardPart(name="format", reward=Code(ref="demo:form")),
    )
    rate = 3e-3 if shape.kind == "learning_rate" else 1e-5
    return RunSpec(
        model="demo-model",
        dataset=FileDataset(path="data/problems.jsonl"),
        reward=WeightedReward(parts=parts),
        recipe=Recipe(
            num_steps=shape.steps,
            prompts_per_batch=max(1, shape.groups),
            group_size=shape.group_size,
            max_response_tokens=256,
            optimizer=AdamW(learning_rate=rate),
            checkpoints=CheckpointPolicy(every=max(1, shape.steps // 2)),
            seed=shape.seed,
        ),
        evals=(
            Eval(
                name="held_out",
                dataset=FileDataset(path="data/held_out.jsonl"),
                every=shape.evaluate_every or None,
            ),
        ),
        name=f"demo {shape.kind}",
        tags=("demo",),
    )


def begin_attempt(run: RunDirectory, attempt: int) -> None:
    """The attempt belongs to this process: while it lives, and nothing has ended, it runs."""
    write_document(run.attempt(attempt) / "runner.json", this_process())
    (run.attempt(attempt) / "ready").touch()


def abandon_attempt(run: RunDirectory, attempt: int) -> None:
    """The attempt's process is no more."""
    gone = ProcessIdentity(pid=2**22, started="long ago", host="demo", boot="demo")
    write_document(run.attempt(attempt) / "runner.json", gone)


def end_attempt(
    run: RunDirectory,
    attempt: int,
    *,
    started_at: float,
    ended_at: float,
    exit_code: int = 0,
    stopped_by: StoppedBy | None = None,
    reason: str = "finished",
) -> None:
    """How the attempt ended."""
    write_exit(
        run,
        Exit(
            attempt=attempt,
            exit_code=exit_code,
            signal="SIGKILL" if exit_code == 137 else None,
            stopped_by=stopped_by,
            reason=reason,
            started_at=started_at,
            ended_at=ended_at,
        ),
    )


def finish(run: RunDirectory, attempt: int, summary: dict[str, Any]) -> None:
    """The engine's own account, and the finish line made of it."""
    write_document(run.attempt(attempt) / "summary.json", summary)
    write_result(run)


def checkpoint(run: RunDirectory, batch: int, position: Position, meaning: str) -> str:
    """A checkpoint that says that it holds no weights; returns its folder."""

    def fill(folder: Path) -> None:
        (folder / "README.txt").write_text(f"A demo run ({meaning}): there are no weights.\n")

    info = CheckpointInfo(
        kind="adapter",
        counters=Counters(batch=batch, optimizer_step=batch, policy_version=batch),
        position=position,
    )
    return str(write_checkpoint(run, batch, fill, info).folder)


def meaning(shape: DemoShape) -> str:
    """What the run shows, in words."""
    return MEANINGS[shape.kind]
