"""One prompt, one answer: the environment that needs no code."""

from __future__ import annotations

from training_gym.spec.environment import Context, Policy
from training_gym.spec.episodes import Outcome
from training_gym.spec.tasks import Task


class SingleTurn:
    """Asks the policy once."""

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """Put the task's prompt to the policy."""
        if isinstance(task.prompt, str):
            await policy.complete(task.prompt)
        else:
            await policy.chat(task.prompt)
        return Outcome()
