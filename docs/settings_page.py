"""docs/settings.md: every field of what a definition is made of, from the code itself."""

from __future__ import annotations

from pathlib import Path

import algorithms_page

from training_gym.spec.drift import DriftLimits
from training_gym.spec.health import Health
from training_gym.spec.recipe import (
    AdamW,
    CheckpointPolicy,
    LocalEngine,
    Lora,
    Recipe,
    Vllm,
)
from training_gym.spec.run import Eval, RunSpec
from training_gym.spec.sampling import Sampling

PAGE = Path(__file__).parent / "settings.md"

VALUES = (
    ("TrainConfig", RunSpec),
    ("Recipe", Recipe),
    ("Sampling", Sampling),
    ("AdamW", AdamW),
    ("Lora", Lora),
    ("LocalEngine", LocalEngine),
    ("Vllm", Vllm),
    ("CheckpointPolicy", CheckpointPolicy),
    ("DriftLimits", DriftLimits),
    ("Eval", Eval),
    ("Health", Health),
)

INTRODUCTION = """\
# Settings

Every field of a definition, its default and what it means; [definitions](definition.md) says how
they come together, [algorithms](algorithms.md) has those of each algorithm, [health](health.md)
the thresholds. `--set recipe.optimizer.learning_rate=1e-5` changes one from the command line. A
setting that would have no effect is refused.
"""


def page() -> str:
    """The page."""
    parts = [INTRODUCTION.rstrip()]
    for name, kind in VALUES:
        parts += [
            f"## `{name}`",
            algorithms_page.text_of(kind),
            algorithms_page.options_of(kind),
        ]
    return "\n\n".join(parts) + "\n"
