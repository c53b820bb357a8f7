"""Test files in one sandbox, the submission in another: only questions and answers pass between.

The tests' interpreter never runs a line of the submission: `import solution` gives stand-ins whose
calls are carried over by the host. So what the tests report cannot be forged from over there; ADR
0020 has the reasons.
"""

from __future__ import annotations

import asyncio
import json
import posixpath
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pydantic import Field

from training_gym.rewards.graders.bench import Bench
from training_gym.rewards.graders.bundle import bundle
from training_gym.rewards.graders.callee import CalleeProcess, Gone, start_callee
from training_gym.rewards.graders.grader import Grader
from training_gym.rewards.graders.remains import leftovers, orphans, verdict_files
from training_gym.rewards.graders.submission import Submission
from training_gym.rewards.graders.verdict import Case, Tampering, Verdict, judged, not_judged
from training_gym.spec.errors import RewardError
from training_gym.spec.sandboxes import MIB, ExecRequest, Sandbox, SandboxProcess


class UnitTests(Grader):
    """1 if a Python test file passes; the task's answer is its text, or several by path.

    Functions and classes as pytest and unittest know them, parametrised tests, simple fixtures,
    `pytest.raises` and `approx`. Tests may call, construct, iterate, index and compare what the
    submission defines; they cannot look at its source or replace parts of it.
    """

    timeout_s: float = Field(60.0, gt=0)
    """Seconds for all tests together."""
    call_timeout_s: float = Field(10.0, gt=0)
    """Seconds for one call into the submission."""

    async def _grade(self, bench: Bench, submission: Submission, cases: Any) -> Verdict:
        tests = _read_tests(cases)
        files = submission.contents()
        signs = submission.signs()
        coded = {path: text.encode() for path, text in tests.items()}
        async with bench.sandbox(files) as theirs, bench.sandbox(coded) as ours:
            callee = await start_callee(theirs, self.timeout_s + 30)
            relay = _Relay(callee, self.call_timeout_s)
            try:
                async with asyncio.timeout(self.timeout_s):
                    verdict = await relay.run(ours, list(tests), _modules(files), self.timeout_s)
            except TimeoutError:
                verdict = {"verdict": [], "late": True}
            signs += await orphans(theirs)
            ended = await callee.end()
            signs += [*callee.tampering, *leftovers(ended), *(await verdict_files(theirs, files))]
            tier = theirs.tier
        if verdict is None:
            return not_judged(f"the process that runs the tests ended: {relay.last_words}")
        signs += [
            Tampering(kind=sign["kind"], evidence=sign["evidence"])
            for sign in verdict.get("findings", ())
        ]
        if verdict.get("late"):
            message = f"the tests took longer than {self.timeout_s:g} s"
            found = [Case(name="tests", passed=False, message=message)]
        else:
            found = [
                Case(
                    name=entry["name"],
                    passed=entry["outcome"] == "passed",
                    message=entry["message"],
                )
                for entry in verdict["verdict"]
                if entry["outcome"] != "skipped"
            ]
        return judged(found, signs, tier, self.partial)


class _Relay:
    """Carries the tests' questions to the submission and its answers back."""

    def __init__(self, callee: CalleeProcess, call_timeout_s: float) -> None:
        self._callee = callee
        self._call_timeout_s = call_timeout_s
        self.last_words = ""

    async def run(
        self, ours: Sandbox, files: list[str], modules: list[str], timeout_s: float
    ) -> dict[str, Any] | None:
        """What the tests report at their end; None if they do not come to one."""
        process = await ours.start(
            ExecRequest(
                code=bundle("plain", "remote", "modules", "pytest_words", "tests"),
                timeout_s=timeout_s + 30,
                kill_output_bytes=1024 * MIB,
            )
        )
        first = {"folder": ours.workspace, "files": files, "modules": modules}
        await _write(process, first)
        try:
            async for line in self._lines(process):
                message = json.loads(line)
                if "verdict" in message:
                    return dict(message)
                await _write(process, await self._answer(message))
            return None
        finally:
            await process.kill()

    async def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            await self._callee.send(message)
            answer = await self._callee.receive(self._call_timeout_s)
        except Gone as gone:
            return {"gone": str(gone)}
        return {
            name: answer[name]
            for name in ("value", "raised", "callback", "args", "named", "changed")
            if name in answer
        }

    async def _lines(self, process: SandboxProcess) -> AsyncIterator[bytes]:
        buffer = bytearray()
        async for piece in process.output():
            if piece.stream == "stderr":
                self.last_words = (self.last_words + piece.data.decode("utf-8", "replace"))[-500:]
                continue
            buffer += piece.data
            while b"\n" in buffer:
                line, _, rest = bytes(buffer).partition(b"\n")
                buffer = bytearray(rest)
                yield line


async def _write(process: SandboxProcess, message: dict[str, Any]) -> None:
    await process.write(json.dumps(message).encode() + b"\n")


def _modules(files: Mapping[str, bytes]) -> list[str]:
    """Names by which the submission's Python files, and folders of them, are imported."""
    names: set[str] = set()
    for path in files:
        if not path.endswith(".py"):
            continue
        parts = posixpath.splitext(path)[0].split("/")
        if parts[-1] == "__init__":
            parts.pop()
        names.update(".".join(parts[: length + 1]) for length in range(len(parts)))
    return sorted(names)


def _read_tests(cases: Any) -> dict[str, str]:
    tests = {"test_solution.py": cases} if isinstance(cases, str) else cases
    if (
        not isinstance(tests, dict)
        or not tests
        or not all(isinstance(text, str) for text in tests.values())
    ):
        raise RewardError(
            f"the tests are not readable: {cases!r:.80}",
            fix="give the text of a test file, or texts by path",
        )
    return tests
