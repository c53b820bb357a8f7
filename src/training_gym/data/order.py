"""Orders and splits that depend on content and seed only.

Everything is decided by SHA-256, so Python's hash seed, the platform and the other tasks
of a set have no say: adding a row moves no task to the other side and swaps no two tasks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from training_gym.spec.tasks import Task


def shuffled(tasks: Iterable[Task], *key: str | int) -> list[Task]:
    """The tasks in an order that depends on `key` and their ids only."""
    prefix = ":".join(str(part) for part in key)
    return sorted(tasks, key=lambda task: _digest(f"{prefix}:{task.id}"))


def is_held_out(split_key: str, eval_fraction: float) -> bool:
    """Whether tasks with this key are for evaluation.

    Raising the fraction only ever moves tasks from training to evaluation.
    """
    position = int.from_bytes(_digest(f"split:{split_key}")[:8], "big") / 2**64
    return position < eval_fraction


def on_side(tasks: Sequence[Task], *, held_out: bool, eval_fraction: float) -> list[Task]:
    """The tasks on one side of the split, order kept."""
    return [task for task in tasks if is_held_out(task.split_key, eval_fraction) == held_out]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
