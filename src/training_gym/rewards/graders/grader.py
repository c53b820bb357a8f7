"""What all graders have in common: settings, the way from an episode to a score, their bench."""

from __future__ import annotations

import abc
import asyncio
import json
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import PrivateAttr, TypeAdapter, ValidationError

from training_gym.rewards.graders.bench import Bench, BenchSettings, or_none
from training_gym.rewards.graders.submission import Submission, submission_of
from training_gym.rewards.graders.verdict import Partial, Verdict
from training_gym.sandboxes.pool import SandboxPool
from training_gym.spec.episodes import Episode, Score
from training_gym.spec.errors import RewardError, SpecError
from training_gym.spec.sandboxes import SandboxProvider

T = TypeVar("T")


class Grader(BenchSettings):
    """Judges submissions in fresh sandboxes; an infrastructure failure gives None, never zero."""

    file: str = "solution.py"
    """Name of the file that a completion's code becomes, where no environment left files."""
    partial: Partial = "all"
    """`all`: 1 if every case passes, else 0; `share`: the share that passes."""
    answer_key: str | None = None
    """Column with the cases; None: the task's answer."""

    _bench: Bench | None = PrivateAttr(None)
    _loop: Any = PrivateAttr(None)

    async def __call__(self, episode: Episode) -> Score | None:
        """The score of an episode."""
        verdict = await self.judge(episode)
        return verdict.as_score

    async def judge(self, episode: Episode) -> Verdict:
        """The whole verdict on an episode."""
        key = self.answer_key
        cases = episode.answer if key is None else episode.task.metadata.get(key)
        if cases is None:
            raise RewardError(
                f"the task has no cases in {'its answer' if key is None else repr(key)}",
                fix="set output_column of the dataset, or answer_key of the grader",
            )
        return await self.grade(submission_of(episode, self.file), cases)

    async def grade(self, submission: Submission, cases: Any) -> Verdict:
        """The verdict on a submission; `cases` as the grader wants them."""
        bench = self._here()
        async with bench.room:
            return await or_none(lambda: self._grade(bench, submission, cases))

    def using(self, source: SandboxProvider | SandboxPool) -> Self:
        """A copy that works in another's sandboxes, or from another's pool, and closes neither."""
        copy = self.changed()
        copy._bench, copy._loop = Bench(copy, source), asyncio.get_running_loop()
        return copy

    async def aclose(self) -> None:
        """End all that it holds."""
        if self._bench is not None:
            await self._bench.aclose()
            self._bench = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _here(self) -> Bench:
        loop = asyncio.get_running_loop()
        if self._bench is None or self._loop is not loop:
            self._bench, self._loop = Bench(self), loop
        return self._bench

    @abc.abstractmethod
    async def _grade(self, bench: Bench, submission: Submission, cases: Any) -> Verdict:
        """The verdict, or a `SandboxError`."""


def read_cases(adapter: TypeAdapter[list[T]], cases: Any, fix: str) -> list[T]:
    """A task's cases, given as values or as JSON; raises `RewardError`."""
    try:
        listed = adapter.validate_python(json.loads(cases) if isinstance(cases, str) else cases)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        where = ".".join(map(str, found["loc"]))
        raise RewardError(f"the cases are not readable: {where}: {found['msg']}", fix=fix) from None
    except SpecError as error:
        raise RewardError(f"the cases are not readable: {error.message}", fix=fix) from None
    except ValueError as error:
        raise RewardError(f"the cases are no JSON: {error}", fix=fix) from None
    if not listed:
        raise RewardError("the task has no cases", fix=fix)
    return listed
