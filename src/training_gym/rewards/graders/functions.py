"""Functions judged by what they return: plain data comes out, and the host compares it."""

from __future__ import annotations

import posixpath
from typing import Any

from pydantic import Field, TypeAdapter

from training_gym.rewards.graders.bench import Bench
from training_gym.rewards.graders.callee import CalleeProcess, Gone, start_callee
from training_gym.rewards.graders.compare import same_value
from training_gym.rewards.graders.grader import Grader, read_cases
from training_gym.rewards.graders.inside.plain import TAG, NotPlain, decode, encode
from training_gym.rewards.graders.remains import leftovers, orphans, verdict_files
from training_gym.rewards.graders.submission import Submission
from training_gym.rewards.graders.verdict import Case, Tampering, Verdict, judged
from training_gym.spec.errors import RewardError
from training_gym.spec.sandboxes import Sandbox
from training_gym.spec.settings import Settings


class FunctionCase(Settings):
    """One call."""

    function: str | None = None
    """Its name, dotted for a method of something the module holds; None: the grader's."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    returns: Any = None
    raises: str | None = None
    """Name of the exception it must raise instead."""


_cases: TypeAdapter[list[FunctionCase]] = TypeAdapter(list[FunctionCase])


class FunctionCases(Grader):
    """1 if a function returns the expected value for every call: `{args, kwargs, returns}`.

    The submission runs in a sandbox and is asked for one call after another; what it answers is
    decoded as plain data and compared on the host. An object with its own `==` is no plain data.
    """

    function: str | None = None
    """Name of the function, where the cases do not say."""
    timeout_s: float = Field(10.0, gt=0)
    """Seconds for one call, and for importing."""
    tolerance: float = Field(1e-9, ge=0)
    """Relative and absolute, between floats."""

    async def _grade(self, bench: Bench, submission: Submission, cases: Any) -> Verdict:
        listed = read_cases(_cases, cases, 'give a list of {"args": […], "returns": …}')
        signs = submission.signs()
        files = submission.contents()
        found: list[Case] = []
        async with bench.sandbox(files) as sandbox:
            while len(found) < len(listed):
                # A process that ended takes its case with it; the next one gets a new process.
                before = len(found)
                signs += await self._session(sandbox, listed, found)
                if len(found) == before:
                    break
            signs += await verdict_files(sandbox, files)
            tier = sandbox.tier
        return judged(found, signs, tier, self.partial)

    async def _session(
        self, sandbox: Sandbox, cases: list[FunctionCase], found: list[Case]
    ) -> list[Tampering]:
        left = len(cases) - len(found)
        callee = await start_callee(sandbox, timeout_s=self.timeout_s * (left + 2) + 10)
        signs: list[Tampering] = []
        try:
            module = await self._ask(callee, do="import", name=_module(self.file))
            for number in range(len(found), len(cases)):
                passed, message = await self._case(callee, module, cases[number], signs)
                found.append(Case(name=f"case {number + 1}", passed=passed, message=message))
        except Gone as gone:
            found.append(Case(name=f"case {len(found) + 1}", passed=False, message=str(gone)))
        except _Raised as error:
            for number in range(len(found), len(cases)):
                message = f"import: {error}"
                found.append(Case(name=f"case {number + 1}", passed=False, message=message))
        signs += await orphans(sandbox)
        result = await callee.end()
        return [*signs, *callee.tampering, *leftovers(result)]

    async def _case(
        self, callee: CalleeProcess, module: Any, case: FunctionCase, signs: list[Tampering]
    ) -> tuple[bool, str]:
        name = case.function or self.function
        if name is None:
            raise RewardError("no function is named", fix="set function=… of the grader")
        try:
            target = module
            for part in name.split("."):
                target = await self._ask(callee, do="get", on=_number(target), name=part)
            given = [encode(item) for item in case.args]
            named = {key: encode(item) for key, item in case.kwargs.items()}
            value = await self._ask(callee, do="call", on=_number(target), args=given, named=named)
        except _Raised as error:
            if error.is_exit:
                signs.append(Tampering(kind="early_exit", evidence=str(error)))
            return case.raises is not None and case.raises in error.mro, str(error)
        if isinstance(value, dict) and value.get(TAG) == "remote":
            if value.get("own_eq"):
                evidence = f"returned a {value.get('type')}, which has its own =="
                signs.append(Tampering(kind="disguised_value", evidence=evidence))
            return False, f"returned a {value.get('type')}, which is no plain data"
        try:
            plain = decode(value)
        except NotPlain as error:
            return False, f"returned {error}"
        if case.raises is not None:
            return False, f"returned {plain!r:.100} instead of raising {case.raises}"
        passed = same_value(case.returns, plain, self.tolerance)
        return passed, "" if passed else f"returned {plain!r:.200}"

    async def _ask(self, callee: CalleeProcess, **request: Any) -> Any:
        await callee.send({"args": [], "named": {}, **request})
        answer = await callee.receive(self.timeout_s)
        if "raised" in answer:
            raise _Raised(answer["raised"])
        return answer.get("value")


class _Raised(Exception):
    """The submission raised."""

    def __init__(self, raised: Any) -> None:
        raised = raised if isinstance(raised, dict) else {}
        self.mro = [str(name) for name in raised.get("mro") or ["Exception"]]
        self.is_exit = self.mro[0] in ("SystemExit", "KeyboardInterrupt", "GeneratorExit")
        super().__init__(f"raised {self.mro[0]}: {str(raised.get('text', ''))[:200]}")


def _number(target: Any) -> Any:
    if isinstance(target, dict) and target.get(TAG) == "remote":
        return target.get("v")
    raise _Raised({"mro": ["TypeError"], "text": "what is named is no object of the submission"})


def _module(file: str) -> str:
    return posixpath.splitext(file)[0].replace("/", ".")
