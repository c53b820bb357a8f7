"""Makes the runs of `health_scenarios`: real ones, by the embedded engine in this process."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # jobs import rewards by the module's name

from health_scenarios import Scenario, sentences

from training_gym.data import write_rows
from training_gym.engines.local import assembly as engine
from training_gym.engines.local.requests import Requests
from training_gym.models import architecture
from training_gym.models.weights.tiny import tiny_model
from training_gym.planning import make_plan
from training_gym.planning.origins import origins_of
from training_gym.platforms.local.machine import probe_machine
from training_gym.records import activity
from training_gym.records.checkpoints import latest_valid
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.algorithms import SFT
from training_gym.spec.recipe import AdamW, CheckpointPolicy, Recipe
from training_gym.spec.run import RunSpec

BEAT_S = 0.5
"""Heartbeats come so much faster than in a whole run as everything else does."""


def make_run(scenario: Scenario, seed: int, models: Path, folder: Path) -> RunDirectory:
    """Train one run into `folder`, from a model in `models`, which is made if it is missing."""
    model = pretrained(models)
    if scenario.hacks:
        model = imitated(models / "hacking", model, sentences(1, 500, hacks=True), 120)
    spec = scenario.definition(str(model), seed)
    return train(spec, folder, scenario.breaks, scenario.max_records)


def pretrained(models: Path) -> Path:
    """The model that all runs start from."""
    ready = models / "sentences"
    return ready if ready.exists() else imitated(ready, _start(models), sentences(0, 2000), 120)


def imitated(ready: Path, start: Path, rows: list[dict[str, Any]], num_steps: int) -> Path:
    """The folder `ready` with the model `start` after it imitated some answers; made once."""
    if not ready.exists():
        recipe = Recipe(
            algorithm=SFT(),
            num_steps=num_steps,
            prompts_per_batch=16,
            group_size=1,
            optimizer=AdamW(learning_rate=5e-3, schedule="cosine", final_fraction=0.05),
            checkpoints=CheckpointPolicy(every=None, keep=1),
        )
        run = train(
            RunSpec(model=str(start), dataset=rows, recipe=recipe), ready.with_suffix(".run")
        )
        checkpoint, _ = latest_valid(run)
        assert checkpoint is not None
        shutil.copytree(checkpoint.folder, ready, ignore=shutil.ignore_patterns("resume"))
    return ready


def _start(models: Path) -> Path:
    return tiny_model(models / "start")


def train(spec: RunSpec, folder: Path, breaks: Any = None, max_records: int = 8192) -> RunDirectory:
    """What a job does, without processes: plan, record, assemble, run."""
    shutil.rmtree(folder, ignore_errors=True)
    run = RunDirectory.create(
        folder,
        Manifest(
            run_id=folder.name,
            created_at=time.time(),
            name=spec.name,
            run=spec.model_dump(mode="json"),
        ),
    )
    run.source.mkdir()
    spec = spec.changed(
        dataset=write_rows(spec.dataset, run.source),
        evals=[e.changed(dataset=write_rows(e.dataset, run.source)) for e in spec.evals],
    )
    plan = make_plan(spec, architecture.read(spec.model), probe_machine(), origins_of(spec))
    asyncio.run(_train(plan, run, breaks, max_records))
    return run


async def _train(plan: Any, run: RunDirectory, breaks: Any, max_records: int) -> None:
    activity.BEAT_S = BEAT_S
    with (
        Recorder(run, writer="runner", attempt=1) as runner,
        Recorder(run, writer="engine", attempt=1, max_records=max_records) as recorder,
        _beating(runner),
    ):
        parts = engine.Assembly(plan, run, recorder, Requests())
        try:
            loop = await parts.loop()
            if breaks is not None:
                breaks(parts)
            await loop.run()
        finally:
            await parts.close()


@contextmanager
def _beating(recorder: Recorder) -> Iterator[None]:
    """The job runner's heartbeat."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(BEAT_S):
            recorder.heartbeat(phase="running")

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
