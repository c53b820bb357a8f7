"""Leaving out prompts that do not fit, counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from training_gym.spec.errors import DataError
from training_gym.spec.tasks import Task


def drop_long(
    tasks: Sequence[Task], measure: Callable[[Task], int], limit: int
) -> tuple[tuple[Task, ...], int]:
    """The tasks whose prompt measures at most `limit` tokens, and how many were left out.

    Raises `DataError` if none is left.
    """
    lengths = [measure(task) for task in tasks]
    kept = tuple(task for task, length in zip(tasks, lengths, strict=True) if length <= limit)
    if tasks and not kept:
        raise DataError(
            f"all {len(tasks)} prompts are longer than {limit} tokens: the shortest has "
            f"{min(lengths)}",
            fix="raise max_prompt_tokens, shorten the template, or use a model with more context",
        )
    return kept, len(tasks) - len(kept)
