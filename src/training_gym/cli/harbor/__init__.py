"""`training-gym harbor …`: tasks in Harbor's format."""

from __future__ import annotations

from training_gym.cli.lazy import Table, group

VERBS: Table = {
    "verify": (
        "harbor.verify:verify",
        "Run each task's reference solution, and no solution, and say whether the task is sound.",
    ),
}

app = group(VERBS, help="Tasks in Harbor's format: check that they are sound.")
