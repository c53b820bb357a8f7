"""`training-gym env …`: environments, played without training."""

from __future__ import annotations

from training_gym.cli.lazy import Table, group

VERBS: Table = {
    "run": ("env.run:run", "Play episodes without training and print their transcripts."),
}

app = group(VERBS, help="Environments, played without training.")
