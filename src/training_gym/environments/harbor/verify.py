"""Is a task sound? Its reference solution must earn the full reward, no solution must not."""

from __future__ import annotations

import shlex
import time
from typing import Literal

from training_gym.data.harbor import HarborTask
from training_gym.data.harbor.config import Step
from training_gym.data.harbor.folder import newer_than_known
from training_gym.data.harbor.ignore import TaskIgnore
from training_gym.environments.harbor.build import BuiltEnvironment
from training_gym.environments.harbor.stage import Stage
from training_gym.environments.harbor.terms import Terms, resolved
from training_gym.environments.harbor.trial import TrialReport, Worker, run_trial
from training_gym.rewards.graders.harbor import put_folder
from training_gym.spec.errors import EnvironmentFailure, SandboxError
from training_gym.spec.sandboxes import ExecRequest, ExecResult, Sandbox, SandboxProvider
from training_gym.spec.settings import Settings

FULL = 1.0
"""The reward a reference solution must reach, and nothing must not."""

Finding = Literal["sound", "solution_fails", "nothing_scores", "no_solution", "not_run"]


class TaskReport(Settings):
    """What running a task's reference solution, and no solution, showed."""

    name: str
    folder: str
    digest: str
    finding: Finding
    """`sound`; `solution_fails`: less than the full reward; `nothing_scores`: the full reward for
    nothing; `no_solution`: nothing to run; `not_run`: it could not be run here."""
    reason: str = ""
    fix: str = ""
    solution: TrialReport | None = None
    nothing: TrialReport | None = None
    tier: str = ""
    duration_s: float = 0.0
    notes: tuple[str, ...] = ()


async def verify_task(provider: SandboxProvider, task: HarborTask, terms: Terms) -> TaskReport:
    """Run both trials; what cannot be run here is reported by name."""
    started = time.monotonic()
    solution = nothing = None
    finding: Finding
    reason, fix = "", ""
    if any(task.solution(step) is None for step in task.steps):
        finding, reason = "no_solution", "there is no solution/solve.sh"
        fix = "add the reference solution"
    else:
        stage = Stage(provider)
        try:
            solution = await run_trial(stage, task, reference(task, terms), terms)
            nothing = await run_trial(stage, task, idle, terms)
            finding, reason = judge(solution, nothing)
            fix = _FIXES[finding]
        except (EnvironmentFailure, SandboxError) as error:
            finding, reason, fix = "not_run", error.message, error.fix
        except TimeoutError:
            finding, reason = "not_run", "building the environment took longer than it may"
            fix = "raise [environment] build_timeout_sec"
        finally:
            await stage.close()
    notes = [note for trial in (solution, nothing) if trial is not None for note in trial.notes]
    if newer_than_known(task.config):
        notes.append(f"schema {task.config.schema_version} is newer than 1.4")
    return TaskReport(
        name=task.name,
        folder=str(task.folder),
        digest=task.digest,
        finding=finding,
        reason=reason,
        fix=fix,
        solution=solution,
        nothing=nothing,
        tier=_tier(solution),
        duration_s=time.monotonic() - started,
        notes=tuple(dict.fromkeys(notes)),
    )


def judge(solution: TrialReport, nothing: TrialReport) -> tuple[Finding, str]:
    """What two trials say about their task."""
    if solution.value is None or solution.value < FULL:
        return "solution_fails", f"the reference solution earns {_said(solution)}"
    if nothing.value is not None and nothing.value >= FULL:
        return "nothing_scores", f"doing nothing earns {_said(nothing)}"
    return "sound", f"solution {solution.value:g}, nothing {_said(nothing)}"


def reference(task: HarborTask, terms: Terms) -> Worker:
    """Runs the reference solution, as Harbor's oracle agent does."""

    async def work(sandbox: Sandbox, step: Step | None, built: BuiltEnvironment) -> ExecResult:
        script = task.solution(step)
        assert script is not None
        await sandbox.exec(ExecRequest(argv=("rm", "-rf", "/solution"), timeout_s=60))
        await put_folder(sandbox, script.parent, "/solution", TaskIgnore(task.folder))
        path = shlex.quote(f"/solution/{script.name}")
        agent = step.agent if step is not None else task.config.agent
        limit = agent.timeout_sec or task.config.agent.timeout_sec or terms.agent_timeout_s
        return await sandbox.exec(
            ExecRequest(
                argv=("bash", "-c", f"chmod +x {path}; ({path}) > /logs/agent/oracle.txt 2>&1"),
                cwd=built.workdir,
                env={"DEBIAN_FRONTEND": "noninteractive", **resolved(task.config.solution.env)},
                timeout_s=limit,
            )
        )

    return work


async def idle(sandbox: Sandbox, step: Step | None, built: BuiltEnvironment) -> None:
    """Does nothing."""


_FIXES: dict[Finding, str] = {
    "sound": "",
    "solution_fails": "mend the solution or the tests: no policy can earn more than the reference",
    "nothing_scores": "mend the tests: they reward doing nothing",
    "no_solution": "add the reference solution",
    "not_run": "",
}


def _said(trial: TrialReport) -> str:
    if trial.value is not None:
        return f"{trial.value:g}"
    last = trial.steps[-1] if trial.steps else None
    if last is None:
        return "no reward"
    if last.failure:
        return f"no reward: {last.failure}"
    return f"no reward: {last.verifier.reason}" if last.verifier is not None else "no reward"


def _tier(trial: TrialReport | None) -> str:
    tiers = [step.verifier.tier for step in trial.steps if step.verifier] if trial else []
    return tiers[0] if tiers else ""
