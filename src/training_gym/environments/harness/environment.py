"""A harness as a black box: it gets a base URL, a key and the task, and works as it always does."""

from __future__ import annotations

import asyncio
import os
import posixpath
import string
from collections.abc import Mapping

from pydantic import Field

from training_gym.environments.harness.command import Ended, folder_with, run_command
from training_gym.rewards.graders.submission import leave
from training_gym.spec.environment import Context, Policy, Served
from training_gym.spec.episodes import Outcome
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.sandboxes import ExecRequest, ExecResult, HostService, Sandbox, SandboxSpec
from training_gym.spec.settings import Settings
from training_gym.spec.tasks import Task

_SHOWN = 4_000
"""Characters of what a harness printed that are kept with the episode."""


class HarnessEnvironment(Settings):
    """Any command that speaks to a model by base URL and key, trained unchanged.

    It finds `OPENAI_BASE_URL`, `OPENAI_API_KEY`, `ANTHROPIC_BASE_URL` and `ANTHROPIC_API_KEY` in
    its environment. In `command`, `env` and `files` these stand for the episode's own: `$prompt`,
    `$openai_url`, `$anthropic_url`, `$key`, `$task_id` and every column of the task's row that
    holds text or a number; `$$` is a dollar. What it is worth, a reward says, or the harness posts.
    """

    command: tuple[str, ...] = Field(min_length=1)
    """Program and arguments."""
    env: dict[str, str] = {}
    """Further variables."""
    env_from: tuple[str, ...] = ()
    """Names of variables handed on from our environment."""
    files: dict[str, str] = {}
    """Files to put into its folder, by path."""
    stdin: str = ""
    """What it reads, with the same names."""
    agent: str = "policy"
    """Whose turns these are."""
    tolerated: tuple[str, ...] = ()
    """Parameters of its requests that may be dropped, such as `tool_choice` or `seed`."""
    timeout_s: float = Field(600.0, gt=0)
    """Seconds after which the episode is truncated."""
    sandbox: SandboxSpec | None = None
    """The sandbox to run it in, which reaches the gateway and nothing else; None: it runs on this
    machine, in a folder of its own, as trusted as your own code."""
    provider: str = "local"
    """Who makes the sandboxes."""
    leaves: tuple[str, ...] = ()
    """Files and folders of the sandbox that are kept with the episode, for graders."""

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """Run it to its end."""
        try:
            async with ctx.serve(self.agent, tolerated=self.tolerated) as served:
                try:
                    async with asyncio.timeout(min(self.timeout_s, ctx.deadline_s)):
                        ended = await self._run(task, served, ctx)
                finally:
                    ctx.keep({"requests": served.requests}, score=served.score)
        except TimeoutError:
            return Outcome(status="truncated", reason=f"the harness took over {self.timeout_s:g} s")
        ctx.keep({"exit_code": ended.exit_code, "output": ended.output[-_SHOWN:]})
        if ended.exit_code == 0:
            return Outcome()
        said = ended.output.strip().rpartition("\n")[2][-200:]
        reason = f"the harness ended with exit code {ended.exit_code}: {said}"
        if served.requests == 0:
            raise EnvironmentFailure(
                f"{reason}; it asked the policy nothing", fix="run its command by hand"
            )
        return Outcome(status="model_failed", reason=reason)

    async def work_in(
        self, sandbox: Sandbox, task: Task, ctx: Context, *, cwd: str = ""
    ) -> ExecResult:
        """Run it in a sandbox that somebody else has; how its command ended."""
        async with ctx.serve(self.agent, tolerated=self.tolerated) as served:
            return await self._inside(sandbox, task, served, cwd=cwd)

    async def _run(self, task: Task, served: Served, ctx: Context) -> Ended:
        if self.sandbox is not None:
            async with ctx.sandbox(self.sandbox, provider=self.provider) as sandbox:
                result = await self._inside(sandbox, task, served)
                if self.leaves:
                    ctx.keep(await leave(sandbox, self.leaves))
                return _ended(result)
        names = _names(task, served.openai_url, served.anthropic_url, served.key)
        with folder_with(self._filled_files(names)) as folder:
            argv = [_filled(part, names) for part in self.command]
            env = {**served.environment, **self._filled_env(names)}
            return await run_command(argv, env=env, stdin=_filled(self.stdin, names), folder=folder)

    async def _inside(
        self, sandbox: Sandbox, task: Task, served: Served, *, cwd: str = ""
    ) -> ExecResult:
        """Run it where the gateway has another address."""
        outside = served.anthropic_url.split("/")[2]
        inside = await sandbox.connect(HostService(name="gateway", address=outside))

        def moved(url: str) -> str:
            return url.replace(f"//{outside}", f"//{inside}", 1)

        names = _names(task, moved(served.openai_url), moved(served.anthropic_url), served.key)
        for path, text in self._filled_files(names).items():
            await sandbox.write_file(posixpath.join(cwd, path), text.encode())
        variables = {name: moved(value) for name, value in served.environment.items()}
        return await sandbox.exec(
            ExecRequest(
                argv=tuple(_filled(part, names) for part in self.command),
                env={**variables, **self._filled_env(names)},
                stdin=_filled(self.stdin, names).encode("utf-8", "replace"),
                cwd=cwd,
                timeout_s=self.timeout_s,
            )
        )

    def _filled_files(self, names: Mapping[str, str]) -> dict[str, str]:
        return {path: _filled(text, names) for path, text in self.files.items()}

    def _filled_env(self, names: Mapping[str, str]) -> dict[str, str]:
        missing = next((name for name in self.env_from if name not in os.environ), None)
        if missing is not None:
            raise EnvironmentFailure(
                f"the harness wants {missing}, which is not set here",
                fix=f"export {missing}=…, and name it in the run's secrets",
            )
        handed = {name: os.environ[name] for name in self.env_from}
        return handed | {name: _filled(text, names) for name, text in self.env.items()}


def _ended(result: ExecResult) -> Ended:
    """How a command in a sandbox ended; raises `TimeoutError` for one that ran out of time."""
    if result.failure == "exec_timeout":
        raise TimeoutError
    said = result.text + result.error_text
    return Ended(result.exit_code, f"{said}\n{result.failure}" if result.failure else said)


def _names(task: Task, openai_url: str, anthropic_url: str, key: str) -> dict[str, str]:
    columns = {
        name: str(value)
        for name, value in task.metadata.items()
        if isinstance(value, str | int | float)
    }
    return {
        **columns,
        "prompt": task.prompt_text,
        "task_id": task.id,
        "openai_url": openai_url,
        "anthropic_url": anthropic_url,
        "key": key,
    }


def _filled(text: str, names: Mapping[str, str]) -> str:
    """The text with its names replaced; raises `EnvironmentFailure` for one that there is not."""
    try:
        return string.Template(text).substitute(names)
    except (KeyError, ValueError) as error:
        raise EnvironmentFailure(
            f"{text[:60]!r} names what the task has not: {error}",
            fix=f"it has {', '.join(sorted(names))}; write $$ for a dollar",
        ) from None
