"""Programs judged by what they write: stdin in, stdout out, compared on the host."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field, TypeAdapter

from training_gym.rewards.graders.bench import Bench
from training_gym.rewards.graders.compare import Comparison, same_output
from training_gym.rewards.graders.grader import Grader, read_cases
from training_gym.rewards.graders.remains import leftovers, verdict_files
from training_gym.rewards.graders.submission import Submission
from training_gym.rewards.graders.verdict import Case, Tampering, Verdict, judged
from training_gym.spec.sandboxes import MIB, ExecRequest, ExecResult
from training_gym.spec.settings import Settings


class ProgramCase(Settings):
    """One run of the program."""

    stdin: str = ""
    stdout: str
    """What it must write."""
    args: tuple[str, ...] = ()


_cases: TypeAdapter[list[ProgramCase]] = TypeAdapter(list[ProgramCase])


class ProgramCases(Grader):
    """1 if a program writes the expected stdout for every stdin; cases are `{stdin, stdout}`.

    Every case runs in a sandbox of its own that holds the submission and nothing else; expected
    outputs stay on the host.
    """

    command: tuple[str, ...] = Field(("python3", "solution.py"), min_length=1)
    """What runs the program, in the workspace; a case's arguments are added."""
    build: tuple[str, ...] = ()
    """What makes it ready, such as a compiler; it runs once in every sandbox."""
    timeout_s: float = Field(10.0, gt=0)
    """Seconds for one case."""
    cases_at_once: int = Field(4, ge=1)
    """Sandboxes for one submission at once."""
    comparison: Comparison = "lines"
    exit_code_matters: bool = True
    """Whether a program that ends with another code than 0 fails the case."""

    async def _grade(self, bench: Bench, submission: Submission, cases: Any) -> Verdict:
        listed = read_cases(_cases, cases, 'give a list of {"stdin": …, "stdout": …}')
        files, signs = submission.contents(), submission.signs()
        room = asyncio.Semaphore(self.cases_at_once)

        async def run(case: ProgramCase, name: str) -> tuple[Case, list[Tampering], str]:
            async with room:
                return await self._run(bench, files, case, name)

        found = await asyncio.gather(
            *(run(case, f"case {number}") for number, case in enumerate(listed, start=1))
        )
        for _, more, _ in found:
            signs += more
        return judged([case for case, _, _ in found], signs, found[0][2], self.partial)

    async def _run(
        self, bench: Bench, files: dict[str, bytes], case: ProgramCase, name: str
    ) -> tuple[Case, list[Tampering], str]:
        async with bench.sandbox(files) as sandbox:
            if self.build:
                built = await sandbox.exec(ExecRequest(argv=self.build, timeout_s=120))
                if not built.ok:
                    message = f"build: {_how(built)}: {_tail(built.stderr)}"
                    return Case(name=name, passed=False, message=message), [], sandbox.tier
            result = await sandbox.exec(
                ExecRequest(
                    argv=(*self.command, *case.args),
                    stdin=case.stdin.encode(),
                    timeout_s=self.timeout_s,
                    max_output_bytes=16 * MIB,
                )
            )
            signs = [*leftovers(result), *(await verdict_files(sandbox, files))]
        fine = result.failure is None and (result.exit_code == 0 or not self.exit_code_matters)
        whole = result.stdout_bytes == len(result.stdout)
        passed = fine and whole and same_output(case.stdout, result.stdout, self.comparison)
        message = "" if passed else (_how(result) if not fine else f"wrote {_tail(result.stdout)}")
        return Case(name=name, passed=passed, message=message), signs, sandbox.tier


def _how(result: ExecResult) -> str:
    return result.failure or f"exit code {result.exit_code}"


def _tail(data: bytes) -> str:
    return repr(data[-200:].decode("utf-8", "replace"))
