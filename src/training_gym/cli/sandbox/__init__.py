"""`training-gym sandbox …`: isolated places to run commands in."""

from __future__ import annotations

from training_gym.cli.lazy import Table, group

VERBS: Table = {
    "run": ("sandbox.run:run", "Run a command in a fresh sandbox and destroy it."),
    "doctor": (
        "sandbox.doctor:doctor",
        "Say which sandboxes work here and what they are worth, by trying.",
    ),
    "size": ("sandbox.size:size", "Say how many sandboxes to hold ready, and why."),
}

app = group(VERBS, help="Isolated places to run commands in.")
