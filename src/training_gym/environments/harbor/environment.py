"""Harbor tasks as environments: any agent works in the task's sandbox, a fork of it is graded."""

from __future__ import annotations

import shlex
from typing import Any

from pydantic import PrivateAttr

from training_gym.data.harbor import HarborTask
from training_gym.data.harbor.config import Step
from training_gym.data.harbor.source import folder_of
from training_gym.environments.harbor.build import BuiltEnvironment
from training_gym.environments.harbor.stage import WARM, Stage
from training_gym.environments.harbor.terms import Terms
from training_gym.environments.harbor.trial import TrialReport, Worker, run_trial
from training_gym.environments.harness import HarnessEnvironment
from training_gym.environments.tools import ToolEnvironment
from training_gym.environments.tools.workbench import read_file, shell, write_file
from training_gym.sandboxes import registry
from training_gym.spec.code import Code
from training_gym.spec.environment import Context, Policy
from training_gym.spec.episodes import Outcome, Score
from training_gym.spec.sandboxes import ExecResult, Sandbox, SandboxProvider
from training_gym.spec.settings import Settings
from training_gym.spec.tasks import Task

_WORKBENCH = tuple(Code.of(tool) for tool in (shell, read_file, write_file))


class HarborEnvironment(Settings):
    """Plays the tasks of a `HarborDataset`, step by step, and takes its verifier's reward.

    A task's environment is built once, and sandboxes of it are kept warm while it is played. The
    verifier runs in a fork of the sandbox, or in one of its own with the declared artifacts, so
    that nothing the agent left running can reach it. A verifier that says no reward leaves the
    episode without a score.
    """

    tools: ToolEnvironment = ToolEnvironment(tools=_WORKBENCH)
    """The agent: tools that work in the task's sandbox. Its own `sandbox` is not used."""
    harness: HarnessEnvironment | None = None
    """The agent instead: a command that runs in the task's sandbox. Its `sandbox` is not used."""
    terms: Terms = Terms()
    """What to do where a task asks for more than there is."""
    provider: str = "local"
    """Who makes the sandboxes."""
    root: str = "."
    """Folder that the dataset's paths are relative to; in a job that is the run's source."""

    _stage: Any = PrivateAttr(None)

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """Take a sandbox of the task's, let the agent work in it, verify."""
        found = folder_of(task, self.root)
        worker = self._worker(task, found, policy, ctx)
        report = await run_trial(self._ready(), found, worker, self.terms)
        return _outcome(report)

    async def aclose(self) -> None:
        """End what is left of its sandboxes."""
        stage, self._stage = self._stage, None
        if stage is not None:
            await stage.close()
            await stage.provider.close()

    def using(self, provider: SandboxProvider) -> HarborEnvironment:
        """A copy that works in another's sandboxes and ends them with itself."""
        copy = self.changed()
        copy._stage = Stage(provider, warm=WARM)
        return copy

    def _ready(self) -> Stage:
        if self._stage is None:
            self._stage = Stage(registry.find(self.provider), warm=WARM)
        stage: Stage = self._stage
        return stage

    def _worker(self, task: Task, found: HarborTask, policy: Policy, ctx: Context) -> Worker:
        async def work(
            sandbox: Sandbox, step: Step | None, built: BuiltEnvironment
        ) -> ExecResult | None:
            instruction = found.instructions[list(found.steps).index(step)]
            asked = task.changed(prompt=instruction)
            if self.harness is not None:
                return await self.harness.work_in(sandbox, asked, ctx, cwd=built.workdir)
            here = f"You work in {shlex.quote(built.workdir)}; give absolute paths."
            asked = asked.changed(prompt=f"{instruction}\n\n{here}")
            played = await self.tools.work_in(sandbox, asked, policy, ctx)
            ctx.log("agent", step=step.name if step else None, status=played.status)
            return None

        return work


def _outcome(report: TrialReport) -> Outcome:
    """What the trial came to; without a reward there is no score."""
    artifacts: dict[str, Any] = {"trial": report.model_dump(mode="json")}
    if report.value is None:
        return Outcome(reason="the verifier said no reward", artifacts=artifacts)
    score = Score(value=report.value, components=report.rewards or {})
    return Outcome(score=score, artifacts=artifacts)
