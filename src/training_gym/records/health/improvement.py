"""What evaluations measured: rules read it before they say that nothing is learned."""

from __future__ import annotations

from training_gym.records.health.history import Evaluated, History
from training_gym.records.pairing import Difference, paired_difference


def risen_evaluation(history: History, since: int) -> tuple[str, Difference] | None:
    """The first suite that rose beyond chance after the step, and by how much.

    Its newest result is compared, task by task, with the last one up to that step, or with its
    first where there is none so early.
    """
    suites: dict[str, list[Evaluated]] = {}
    for found in history.evaluations:
        suites.setdefault(found.name, []).append(found)
    for name, series in suites.items():
        newest = series[-1]
        earlier = [found for found in series[:-1] if found.step <= since] or series[:1]
        if newest.step <= since or earlier[-1] is newest:
            continue
        difference = paired_difference(earlier[-1].task_means, newest.task_means)
        if difference is not None and difference.rose:
            return name, difference
    return None
