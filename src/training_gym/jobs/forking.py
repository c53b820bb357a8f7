"""A fork: a new run that goes on exactly where another one's checkpoint stands.

It has its own directory with the parent's source, plan and checkpoint (optimizer, counters, place
in the data), so that without a changed setting it computes what the parent would have.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from training_gym.records import remote
from training_gym.records.checkpoints import (
    Checkpoint,
    CheckpointInfo,
    list_checkpoints,
    require_whole,
    write_checkpoint,
)
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import CheckpointError, SpecError, did_you_mean
from training_gym.spec.plan import Origin, Plan

_OPEN = ("recipe", "name", "tags")
_FIXED = ("recipe.seed", "recipe.adapter", "recipe.engine.kind", "recipe.algorithm")


def require_forkable(path: str) -> None:
    """Raise `SpecError` for a setting that a checkpoint's state would contradict."""
    head = path.partition(".")[0]
    fixed = next((name for name in _FIXED if path == name or path.startswith(f"{name}.")), None)
    is_number = fixed == "recipe.algorithm" and path.count(".") > 1 and not path.endswith(".kind")
    if head in _OPEN and (fixed is None or is_number):
        return
    raise SpecError(
        f"a fork cannot change {path}: its checkpoint belongs to the value it was made with",
        fix="to change it, start a run with resume_from_checkpoint=… (the weights only)",
    )


def checkpoint_to_fork(parent: RunDirectory, step: int | None) -> Checkpoint:
    """The parent's whole checkpoint of that optimizer step, or its newest."""
    known = {checkpoint.step: checkpoint for checkpoint in list_checkpoints(parent)}
    if not known:
        raise CheckpointError(
            f"run {parent.run_id} has no checkpoint to fork from",
            fix="wait for its first one, or set recipe.checkpoints.every lower",
        )
    if step is not None and step not in known:
        raise CheckpointError(
            f"run {parent.run_id} has no checkpoint of step {step}",
            fix=did_you_mean(str(step), map(str, known)),
        )
    return require_whole(known[max(known) if step is None else step].folder)


def require_steps_left(checkpoint: Checkpoint, plan: Plan) -> None:
    """Raise `SpecError` where nothing would be left to do."""
    batch, total = checkpoint.counters.batch, plan.run.recipe.num_steps
    if batch is not None and batch >= total:
        raise SpecError(
            f"the checkpoint of step {checkpoint.step} was written after {batch} of {total} "
            "batches: nothing is left to train",
            fix=f"add --set recipe.num_steps={2 * total}, or fork an earlier checkpoint",
        )


def make_fork(
    parent: RunDirectory,
    run_id: str,
    plan: Plan,
    origins: Mapping[str, Origin],
    checkpoint: Checkpoint,
) -> RunDirectory:
    """The new run's directory, ready to be submitted as if its attempt were a resume."""
    manifest = parent.manifest.changed(
        run_id=run_id,
        created_at=time.time(),
        name=plan.run.name,
        tags=plan.run.tags,
        run=plan.run.model_dump(mode="json"),
        origins=dict(origins),
        parents=(parent.run_id, str(checkpoint.folder)),
    )
    link = remote.asked_for(manifest, os.environ)
    run = RunDirectory.create(parent.path.with_name(run_id), manifest)
    if link is not None:
        link.keep(run)
    run.write_plan(plan)
    shutil.copyfile(parent.environment_path, run.environment_path)
    shutil.copyfile(parent.source_archive, run.source_archive)
    _copy(checkpoint, run)
    return run


def _copy(checkpoint: Checkpoint, run: RunDirectory) -> None:
    """The checkpoint as the new run's own; its place in the parent's records means nothing here."""
    info = {name: getattr(checkpoint, name) for name in CheckpointInfo.model_fields}

    def fill(folder: Path) -> None:
        for file in checkpoint.files:
            target = folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(checkpoint.folder / file.path, target)

    write_checkpoint(run, checkpoint.step, fill, CheckpointInfo(**{**info, "position": None}))


def _link(source: Path, target: Path) -> None:
    # Files of a checkpoint are never written again, so two runs may share them.
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
