"""An endless stream of tasks whose position can be saved and restored exactly."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from training_gym.data.order import shuffled
from training_gym.spec.errors import CheckpointError, DataError
from training_gym.spec.tasks import Task


class TaskStream:
    """Draws every task once an epoch, in an order that depends on seed and epoch only.

    A batch that reaches into the next epoch holds no task twice, as long as it is not larger
    than the set: what it already holds comes last in the new epoch.
    """

    def __init__(self, tasks: Sequence[Task], seed: int, *, shuffle: bool = True) -> None:
        """Start at the first epoch; `shuffle=False` keeps the order of `tasks` in all of them."""
        if not tasks:
            raise DataError("there are no tasks to draw from", fix="give at least one row")
        self._tasks = tuple(tasks)
        self._seed = seed
        self._shuffle = shuffle
        self._identity = _identity(self._tasks, seed, shuffle)
        self._position = 0
        self._begin(epoch=0, last=())

    def take(self, n: int) -> list[Task]:
        """The next `n` tasks."""
        taken: list[Task] = []
        while len(taken) < n:
            if self._position == len(self._order):
                self._begin(epoch=self._epoch + 1, last=[task.id for task in taken])
            end = min(self._position + n - len(taken), len(self._order))
            taken += self._order[self._position : end]
            self._position = end
        return taken

    def named(self, task_id: str) -> Task:
        """The task of this id; raises `CheckpointError` where there is none."""
        found = next((task for task in self._tasks if task.id == task_id), None)
        if found is None:
            raise CheckpointError(
                f"the checkpoint was made with other tasks: none is called {task_id!r:.60}",
                fix="resume with the same dataset and seed, or start a new run from its weights",
            )
        return found

    def state(self) -> dict[str, Any]:
        """The position as JSON, for `restore`."""
        return {
            "tasks": self._identity,
            "epoch": self._epoch,
            "position": self._position,
            "last": list(self._last),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken; raises `CheckpointError` for other tasks."""
        if state["tasks"] != self._identity:
            raise CheckpointError(
                f"the checkpoint was made with other tasks or another seed "
                f"({state['tasks'][:12]}, now {self._identity[:12]})",
                fix="resume with the same dataset and seed, or start a new run from its weights",
            )
        self._begin(epoch=state["epoch"], last=state["last"])
        self._position = state["position"]

    def _begin(self, epoch: int, last: Sequence[str]) -> None:
        order = shuffled(self._tasks, "epoch", self._seed, epoch) if self._shuffle else self._tasks
        late = set(last)
        self._order = sorted(order, key=lambda task: task.id in late)
        self._epoch = epoch
        self._last = tuple(last)
        self._position = 0


def _identity(tasks: Sequence[Task], seed: int, shuffle: bool) -> str:
    digest = hashlib.sha256(f"{seed}:{shuffle}".encode())
    for task in tasks:
        digest.update(b"\n" + task.id.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
