"""`training-gym runs show`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from training_gym.cli.options import AsJson, RunId

if TYPE_CHECKING:
    from training_gym.runs import Run


def show(run_id: RunId, as_json: AsJson = False) -> None:
    """Show one run: definition, state, checkpoints."""
    from training_gym.cli import output
    from training_gym.cli.runs.lookup import find_run

    run = find_run(run_id)
    fields = _fields(run)
    if as_json:
        output.emit("runs.show/1", **fields)
        return
    for name in ("run_id", "name", "status", "reason", "created_at", "path", "checkpoint"):
        if fields[name]:
            output.data(f"{name:<12}{fields[name]}")
    total = "" if fields["num_steps"] is None else f" of {fields['num_steps']}"
    output.data(f"{'step':<12}{fields['step']}{total}, attempt {fields['attempts']}")
    for path, origin in fields["origins"].items():
        if origin == "user":
            output.data(f"{'set':<12}{path} = {output.value_at(fields['run'], path)}")
    for checkpoint in fields["checkpoints"]:
        output.data(f"{'saved':<12}step {checkpoint['step']}, {checkpoint['path']}")


def _fields(run: Run) -> dict[str, Any]:
    from training_gym.cli.finish import ending
    from training_gym.cli.progress import Watch
    from training_gym.cli.runs.lookup import files_of
    from training_gym.records.checkpoints import list_checkpoints

    files = files_of(run)
    manifest = files.manifest
    progress = Watch(files).look()
    created = datetime.fromtimestamp(manifest.created_at, UTC)
    return {
        **ending(run),
        "name": manifest.name,
        "tags": list(manifest.tags),
        "created_at": created.isoformat(timespec="seconds"),
        "attempts": len(files.attempts()),
        "step": progress.step,
        "num_steps": progress.num_steps,
        "run": manifest.run,
        "origins": manifest.origins,
        "checkpoints": [
            {
                "step": checkpoint.step,
                "kind": checkpoint.kind,
                "path": str(checkpoint.folder),
                "sha256": checkpoint.sha256,
            }
            for checkpoint in list_checkpoints(files)
        ],
        "parents": list(manifest.parents),
    }
