"""One trial: a task's environment, whoever works in it, its verifier; step by step.

The verifier grades a fork of the sandbox, or a sandbox of its own with the declared artifacts: what
works there has ended and cannot reach it. Processes that a command leaves behind are ended with
it; Harbor would keep them, so the report says where that happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Literal

from training_gym.data.harbor import HarborTask
from training_gym.data.harbor.config import Healthcheck, Step
from training_gym.environments.harbor.artifacts import carry_artifacts
from training_gym.environments.harbor.build import BuiltEnvironment
from training_gym.environments.harbor.stage import Stage
from training_gym.environments.harbor.terms import (
    Terms,
    check_services,
    check_users,
    network_of,
    notes_of,
    resolved,
    resources_of,
)
from training_gym.rewards.graders.harbor import VerifierResult, put_folder, run_verifier
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.sandboxes import (
    ExecRequest,
    ExecResult,
    Sandbox,
    SandboxSpec,
)
from training_gym.spec.settings import Settings

Worker = Callable[[Sandbox, Step | None, BuiltEnvironment], Awaitable[ExecResult | None]]
"""Does a step's work in its sandbox; the result of its last command, if it ran one."""


class StepReport(Settings):
    """One step."""

    name: str
    verifier: VerifierResult | None = None
    """None where it was not reached."""
    failure: str = ""
    """What kept the step from being worked on."""
    duration_s: float = 0.0


class TrialReport(Settings):
    """One trial."""

    rewards: dict[str, float] | None = None
    """Over all steps, by the task's strategy; None: there is none, which is not zero."""
    steps: tuple[StepReport, ...] = ()
    stopped_at: str | None = None
    """The step whose reward was below its `min_reward`."""
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> float | None:
        """One number, as `VerifierResult.value`."""
        return VerifierResult(rewards=self.rewards).value


async def run_trial(stage: Stage, task: HarborTask, worker: Worker, terms: Terms) -> TrialReport:
    """Run all steps; raises `EnvironmentFailure` or `SandboxError` where that cannot be."""
    check_users(task)
    check_services(task)
    return await _Trial(stage, task, worker, terms).run()


class _Trial:
    def __init__(self, stage: Stage, task: HarborTask, worker: Worker, terms: Terms) -> None:
        self._stage = stage
        self._task = task
        self._worker = worker
        self._terms = terms
        self._notes = notes_of(task)

    async def run(self) -> TrialReport:
        """The steps in order, until one falls short."""
        reports: list[StepReport] = []
        stopped_at = None
        async with self._sandbox(None) as (sandbox, built):
            health = self._task.config.environment.healthcheck
            if health is not None:
                await _wait_until_healthy(sandbox, health, built.workdir)
            for step in self._task.steps:
                report = await self._step(sandbox, built, step)
                reports.append(report)
                if report.failure or _falls_short(step, report):
                    stopped_at = report.name
                    break
        strategy = self._task.config.multi_step_reward_strategy or "mean"
        rewards = combined([report.verifier for report in reports], strategy)
        notes = tuple(dict.fromkeys(self._notes))
        return TrialReport(
            rewards=rewards, steps=tuple(reports), stopped_at=stopped_at, notes=notes
        )

    async def _step(
        self, sandbox: Sandbox, built: BuiltEnvironment, step: Step | None
    ) -> StepReport:
        started = time.monotonic()
        name = step.name if step is not None else self._task.name
        failure = await self._prepare(sandbox, built, step)
        if failure:
            return StepReport(name=name, failure=failure, duration_s=time.monotonic() - started)
        done = await self._worker(sandbox, step, built)
        if done is not None and done.failure is not None:
            self._notes.append(f"{name}: what worked on it was ended: {done.failure}")
        if done is not None and done.leftovers:
            self._notes.append(
                f"{name}: {done.leftovers} processes it left running were ended; Harbor keeps them"
            )
        verdict = await self._verify(sandbox, built, step)
        return StepReport(name=name, verifier=verdict, duration_s=time.monotonic() - started)

    async def _prepare(self, sandbox: Sandbox, built: BuiltEnvironment, step: Step | None) -> str:
        """Stage a step's files, run its setup and healthcheck; says what failed."""
        if step is None:
            return ""
        workdir = self._task.folder / "steps" / step.name / "workdir"
        if workdir.is_dir():
            await put_folder(sandbox, workdir, built.workdir)
        if (workdir / "setup.sh").is_file():
            done = await sandbox.exec(
                ExecRequest(argv=("bash", "setup.sh"), cwd=built.workdir, timeout_s=600)
            )
            if not done.ok:
                return f"setup.sh: {done.failure or f'exit code {done.exit_code}'}"
        if step.healthcheck is not None:
            try:
                await _wait_until_healthy(sandbox, step.healthcheck, built.workdir)
            except EnvironmentFailure as error:
                return error.message
        return ""

    async def _verify(
        self, sandbox: Sandbox, built: BuiltEnvironment, step: Step | None
    ) -> VerifierResult:
        config = self._task.config
        env = resolved({**config.verifier.env, **(step.verifier.env if step is not None else {})})
        hooks = [*config.verifier.collect, *(step.verifier.collect if step is not None else ())]
        for hook in hooks:
            request = ExecRequest(
                argv=("bash", "-c", hook.command), cwd=built.workdir, timeout_s=hook.timeout_sec
            )
            if not (await sandbox.exec(request)).ok:
                self._notes.append(f"the collect hook {hook.command!r:.60} failed")
        if config.verifier_mode(step) == "shared":
            (fork,) = await sandbox.fork(1)
            async with fork:
                return await run_verifier(fork, self._task, step, env)
        async with self._sandbox(step, separate=True) as (own, _):
            declared = [*config.artifacts, *(step.artifacts if step is not None else ())]
            self._notes += await carry_artifacts(sandbox, own, declared)
            return await run_verifier(own, self._task, step, env)

    @contextlib.asynccontextmanager
    async def _sandbox(
        self, step: Step | None, *, separate: bool = False
    ) -> AsyncIterator[tuple[Sandbox, BuiltEnvironment]]:
        """A sandbox of the agent's environment, or of a separate verifier's."""
        task = self._task
        config = task.config.environment
        folder = task.folder / "environment"
        docker_image = config.docker_image
        if separate:
            config = task.config.verifier_environment(step) or config
            own = task.verifier_image(step)
            folder = own or folder
            docker_image = config.docker_image or (None if own else docker_image)
        provider = self._stage.provider
        resources = resources_of(config, provider)
        network = network_of(config, provider, self._terms)
        built = await self._stage.environment(
            folder,
            docker_image=docker_image,
            base=self._terms.base,
            network=network,
            resources=resources,
            timeout_s=config.build_timeout_sec,
        )
        self._notes += built.notes
        workdir = config.workdir or built.workdir
        spec = SandboxSpec(
            image=built.image,
            resources=resources,
            network=network,
            env={**built.env, **resolved(config.env)},
            user="root",
            tags={"purpose": "harbor"},
        )
        async with self._stage.sandbox(spec) as sandbox:
            folders = ("/logs/agent", "/logs/verifier", "/logs/artifacts", "/tests", workdir)
            made = await sandbox.exec(
                ExecRequest(argv=("mkdir", "-p", *folders), cwd="/", timeout_s=60)
            )
            if not made.ok:
                raise EnvironmentFailure(
                    f"the folders of Harbor cannot be made: {made.error_text.strip()}",
                    fix="the environment must let root write to /logs and /tests",
                )
            yield sandbox, BuiltEnvironment(built.image, built.env, workdir)


def combined(
    results: list[VerifierResult | None], strategy: Literal["mean", "final"]
) -> dict[str, float] | None:
    """A task's rewards from its steps': the last one's, or the mean by name, absent ones as 0."""
    if strategy == "final" and results:
        return results[-1].rewards if results[-1] is not None else None
    known = [result.rewards for result in results if result is not None and result.rewards]
    if not known:
        return None
    names: dict[str, None] = dict.fromkeys(name for rewards in known for name in rewards)
    return {name: sum(rewards.get(name, 0.0) for rewards in known) / len(known) for name in names}


def _falls_short(step: Step | None, report: StepReport) -> bool:
    if step is None or step.min_reward is None:
        return False
    wanted: Mapping[str, float] = (
        step.min_reward if isinstance(step.min_reward, dict) else {"reward": step.min_reward}
    )
    got = (report.verifier.rewards if report.verifier is not None else None) or {}
    return any(got.get(name, float("-inf")) < least for name, least in wanted.items())


async def _wait_until_healthy(sandbox: Sandbox, health: Healthcheck, workdir: str) -> None:
    """Run the check as Docker would; raises `EnvironmentFailure` after its retries."""
    started = time.monotonic()
    failures = 0
    while True:
        result = await sandbox.exec(
            ExecRequest(
                argv=("bash", "-c", health.command),
                cwd=posixpath.join("/", workdir),
                timeout_s=max(health.timeout_sec, 0.001),
            )
        )
        if result.ok:
            return
        starting = time.monotonic() - started < health.start_period_sec
        failures += not starting
        if failures >= health.retries:
            raise EnvironmentFailure(
                f"the healthcheck {health.command!r:.60} failed {failures} times",
                fix="mend the environment or its healthcheck",
            )
        await asyncio.sleep(health.start_interval_sec if starting else health.interval_sec)
