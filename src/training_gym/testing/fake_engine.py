"""`FakeEngine`: an engine whose jobs train nothing and need nothing."""

from __future__ import annotations

from collections.abc import Sequence

from training_gym.spec.engine import Support, SupportReport
from training_gym.spec.job import ControlKind, Job, NodeGroup, Tap
from training_gym.spec.plan import Plan
from training_gym.spec.run import RunSpec

SIGNALS: dict[ControlKind, str] = {
    "stop": "SIGINT",
    "stop_now": "SIGTERM",
    "checkpoint": "SIGUSR1",
}
"""Signals that the tiny engine understands."""


def tiny_job(
    run_id: str, *arguments: str, attempt: int = 1, max_restarts: int = 0, stop_grace_s: float = 20
) -> Job:
    """A job that runs the tiny engine with these arguments."""
    command = ("{python}", "-m", "training_gym.testing.tiny_engine", *arguments)
    return Job(
        run_id=run_id,
        attempt=attempt,
        groups=(NodeGroup(command=command),),
        signals=SIGNALS,
        max_restarts=max_restarts,
        stop_grace_s=stop_grace_s,
    )


class FakeEngine:
    """Renders jobs that count to `num_steps`; refuses what it is told to."""

    name = "fake"

    def __init__(self, *arguments: str, refused: Sequence[Support] = ()) -> None:
        """`arguments` go to the tiny engine."""
        self._arguments = arguments
        self._refused = tuple(refused)

    def supports(self, run: RunSpec) -> SupportReport:
        """Honours everything else."""
        return SupportReport(engine=self.name, entries=self._refused)

    def render(self, plan: Plan, run_id: str, attempt: int) -> Job:
        """A job of the tiny engine."""
        recipe = plan.run.recipe
        steps = ("--steps", str(recipe.num_steps))
        job = tiny_job(
            run_id, *steps, *self._arguments, attempt=attempt, max_restarts=recipe.max_restarts
        )
        return job.changed(taps=self.taps(plan), secrets=plan.run.secrets)

    def taps(self, plan: Plan) -> tuple[Tap, ...]:
        """What it says."""
        return (Tap(source="stdout"), Tap(source="stderr"))
