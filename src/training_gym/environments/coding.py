"""Programming in turns: write a file, see how it runs, try again; judged elsewhere.

What runs in the episode's sandbox only advises the policy. The reward is a grader's
(`training_gym.rewards.graders`), which takes the files that were left and runs them in sandboxes of
its own, so nothing done in here can touch it.
"""

from __future__ import annotations

from pydantic import Field

from training_gym.environments.opening import opening
from training_gym.rewards.graders.submission import last_block, leave
from training_gym.spec.environment import Context, Policy
from training_gym.spec.episodes import Outcome
from training_gym.spec.messages import user
from training_gym.spec.sandboxes import ExecRequest, ExecResult, Sandbox, SandboxSpec
from training_gym.spec.settings import Settings
from training_gym.spec.tasks import Task

_RUN = """
import sys
path, check = sys.argv[1], sys.stdin.read()
scope = {"__name__": "solution"}
exec(compile(open(path).read(), path, "exec"), scope)
exec(compile(check, "examples", "exec"), scope)
"""


class CodingEnvironment(Settings):
    """The policy writes a file, is shown what happens with the examples, and may write it anew.

    The last fenced block of an answer becomes the file. The episode ends when the examples pass or
    the attempts are used up; either way it is finished, and the grader has the word.
    """

    file: str = "solution.py"
    """Name of the file, which graders look for, too."""
    attempts: int = Field(3, ge=1)
    """Answers the policy has."""
    examples_key: str = "examples"
    """Column with Python statements that are run after the file, such as `assert f(1) == 2`."""
    python: str = "python3"
    """The interpreter, in the image."""
    timeout_s: float = Field(10.0, gt=0)
    """Seconds for one run."""
    sandbox: SandboxSpec = SandboxSpec(tags={"purpose": "episode"})
    provider: str = "local"
    """Who makes the sandboxes."""
    max_output_chars: int = Field(600, ge=1)
    """Of what a run printed, its end is shown."""

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """Write, run, read, until it works."""
        examples = str(task.metadata.get(self.examples_key) or "")
        messages = opening(task)
        async with ctx.sandbox(self.sandbox, provider=self.provider) as sandbox:
            for attempt in range(1, self.attempts + 1):
                reply = await policy.chat(messages)
                code = last_block(reply.text).encode("utf-8", "replace")
                await sandbox.write_file(self.file, code)
                ctx.keep({"attempts": attempt, **await leave(sandbox, [self.file])})
                result = await self._try(sandbox, examples)
                ctx.log("run", attempt=attempt, exit_code=result.exit_code, failure=result.failure)
                if result.ok:
                    break
                messages = [*messages, reply, user(self._told(result))]
        return Outcome()

    async def _try(self, sandbox: Sandbox, examples: str) -> ExecResult:
        return await sandbox.exec(
            ExecRequest(
                argv=(self.python, "-c", _RUN, self.file),
                stdin=examples.encode("utf-8", "replace"),
                timeout_s=self.timeout_s,
            )
        )

    def _told(self, result: ExecResult) -> str:
        """What the policy reads of a run that failed."""
        if result.failure is not None:
            return f"The run was ended: {result.failure}. Write the whole file again."
        said = (result.text + result.error_text).strip()[-self.max_output_chars :]
        return f"That failed:\n{said}\nWrite the whole file again."
