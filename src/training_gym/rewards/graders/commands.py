"""Tests in any language, beside the submission: a command whose exit code is the verdict.

Weaker than the other graders by nature, because the command runs the submission and judges it in
one place. So the tests are put back over whatever the submission brought along, files that change
how a test runner starts stay out, and the command must *fail* on a test made to fail: a runner
that has been talked out of failing gives itself away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from training_gym.rewards.graders.bench import Bench
from training_gym.rewards.graders.grader import Grader
from training_gym.rewards.graders.inspection import is_hook
from training_gym.rewards.graders.remains import leftovers, verdict_files
from training_gym.rewards.graders.submission import Submission
from training_gym.rewards.graders.verdict import Case, Tampering, Verdict, judged
from training_gym.spec.errors import RewardError
from training_gym.spec.sandboxes import ExecRequest, ExecResult, Sandbox, SandboxFileError


class CommandTests(Grader):
    """1 if a command exits with 0 on the task's test files, given by path as the task's answer."""

    command: tuple[str, ...] = Field(min_length=1)
    """What runs the tests, in the workspace."""
    must_fail: dict[str, str] = Field(min_length=1)
    """Text by path of a test that cannot pass, put beside or over the others in a second run."""
    setup: tuple[str, ...] = ()
    """What runs before the command, such as a compiler."""
    timeout_s: float = Field(120.0, gt=0)

    async def _grade(self, bench: Bench, submission: Submission, cases: Any) -> Verdict:
        tests = _read_tests(cases)
        signs = submission.signs()
        files = self._files(submission.contents(), tests, signs)
        result, tier = await self._run(bench, files, tests, {}, signs)
        passed = result.ok
        if passed:
            broken, _ = await self._run(bench, files, tests, self.must_fail, signs)
            if broken.ok:
                passed = False
                evidence = "the command exits with 0 on a test that must fail"
                signs.append(Tampering(kind="patched_runner", evidence=evidence))
        message = "" if passed else _tail(result)
        case = Case(name=" ".join(self.command), passed=passed, message=message)
        return judged([case], signs, tier, self.partial)

    def _files(
        self, given: dict[str, bytes], tests: Mapping[str, bytes], signs: list[Tampering]
    ) -> dict[str, bytes]:
        """The submission without what only the tests may bring."""
        kept = {}
        for path, data in given.items():
            if path in tests or path in self.must_fail:
                if data != tests.get(path):
                    signs.append(Tampering(kind="protected_file", evidence=path, observed=False))
            elif not is_hook(path):
                kept[path] = data
        return kept

    async def _run(
        self,
        bench: Bench,
        files: Mapping[str, bytes],
        tests: Mapping[str, bytes],
        broken: Mapping[str, str],
        signs: list[Tampering],
    ) -> tuple[ExecResult, str]:
        coded = {path: text.encode() for path, text in broken.items()}
        placed = {**files, **tests, **coded}
        async with bench.sandbox(placed) as sandbox:
            if self.setup:
                ready = await sandbox.exec(ExecRequest(argv=self.setup, timeout_s=self.timeout_s))
                if not ready.ok:
                    return ready, sandbox.tier
                for path, data in {**tests, **coded}.items():
                    await sandbox.write_file(path, data)
            result = await sandbox.exec(ExecRequest(argv=self.command, timeout_s=self.timeout_s))
            signs += leftovers(result)
            signs += await verdict_files(sandbox, placed)
            signs += await _changed(sandbox, {**tests, **coded})
            return result, sandbox.tier


async def _changed(sandbox: Sandbox, tests: Mapping[str, bytes]) -> list[Tampering]:
    found = []
    for path, data in tests.items():
        try:
            now = await sandbox.read_file(path, max_bytes=len(data) + 1)
        except SandboxFileError:
            now = b""
        if hashlib.sha256(now).digest() != hashlib.sha256(data).digest():
            found.append(Tampering(kind="tests_changed", evidence=path))
    return found


def _read_tests(cases: Any) -> dict[str, bytes]:
    if not isinstance(cases, dict) or not all(isinstance(text, str) for text in cases.values()):
        raise RewardError(
            f"the tests are not readable: {cases!r:.80}", fix="give texts by path as the answer"
        )
    return {path: text.encode() for path, text in cases.items()}


def _tail(result: ExecResult) -> str:
    text = (result.stdout + result.stderr)[-400:].decode("utf-8", "replace")
    return f"{result.failure or f'exit code {result.exit_code}'}: {text!r}"
