"""An environment whose running counts as work, for the watchdog and the timeline."""

from __future__ import annotations

from training_gym.records.activity import Activity
from training_gym.spec.environment import Context, Environment, Policy
from training_gym.spec.episodes import Outcome
from training_gym.spec.tasks import Task


class Watched:
    """Implements `spec.environment.Environment` around another one, which stays as it is."""

    def __init__(self, inner: Environment, activity: Activity) -> None:
        """Report to `activity` while `inner` runs; its waiting for the policy is not counted."""
        self._inner = inner
        self._activity = activity

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """See `spec.environment.Environment`."""
        with self._activity.at("environment", task.id):
            return await self._inner.run(task, policy, ctx)

    async def aclose(self) -> None:
        """End what the environment holds in common for its episodes, if it does."""
        if hasattr(self._inner, "aclose"):
            await self._inner.aclose()
