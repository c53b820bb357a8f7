"""A judge's question, or its rubric, and the way from a group's episodes to their scores."""

from __future__ import annotations

import abc
import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import Field, PrivateAttr, model_validator

from training_gym.models.endpoint import EndpointPolicy
from training_gym.rewards.judges.asking import Asker, FolderMemory
from training_gym.rewards.judges.sheet import make_sheet
from training_gym.spec.endpoints import Endpoint
from training_gym.spec.environment import Policy
from training_gym.spec.episodes import Episode, Score
from training_gym.spec.errors import RewardError
from training_gym.spec.home import cache_directory
from training_gym.spec.rewards import group_reward
from training_gym.spec.settings import Settings


class Criterion(Settings):
    """One thing to grade."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    about: str
    """What the judge is asked, such as `cites a source that exists`."""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)


class JudgeSettings(Settings):
    """Whom to ask, and how."""

    endpoint: Endpoint | None = None
    """A server's model; None: whatever policy the judge is given by `using`."""
    batch: int = Field(4, ge=1)
    """Answers of one group on one sheet, in random order."""
    top: int = Field(10, ge=1)
    """The best grade; the worst is 0."""
    canaries: float = Field(0.25, ge=0, le=1)
    """Share of the sheets with an answer on it that only pleads for a good grade."""
    canary_limit: float = Field(0.3, ge=0, le=1)
    """Share of the best grade above which a canary counts as believed: the sheet is void."""
    with_answer: bool = True
    """Show the judge the task's expected answer, where it has one."""
    attempts: int = Field(2, ge=1)
    """Requests for one sheet, where a reply cannot be read."""
    max_requests: int | None = Field(None, ge=0)
    """Budget over the whole run; beyond it nothing is judged."""
    max_tokens: int = Field(1024, ge=16)
    """Of one reply."""
    concurrency: int = Field(8, ge=1)
    """Requests at once."""
    remember: bool = True
    """Keep grades under `$TRAINING_GYM_HOME/cache/judges`, and never ask the same twice."""
    seed: int = 0
    """Of the order of answers and of the canaries."""

    _asker: Asker | None = PrivateAttr(None)
    _own: EndpointPolicy | None = PrivateAttr(None)
    _loop: Any = PrivateAttr(None)
    _believed: int = PrivateAttr(0)

    @abc.abstractmethod
    def criteria_in(self) -> tuple[Criterion, ...]:
        """What is graded."""

    @property
    def believed_canaries(self) -> int:
        """Sheets that were void because the judge gave in to a canary."""
        return self._believed

    @property
    def asker(self) -> Asker | None:
        """Counts of what was asked so far; None before the first question."""
        return self._asker

    def using(self, policy: Policy, name: str) -> Self:
        """A copy that asks this policy, called `name` in the memory; it stays its caller's."""
        copy = self.changed()
        copy._asker, copy._loop = copy._made(policy, name), asyncio.get_running_loop()
        return copy

    async def grade(
        self, task: str, reference: str, answers: Sequence[str]
    ) -> list[dict[str, float] | None]:
        """Each answer's grades by criterion, from 0 to 1; None where it could not be judged."""
        sheets = [answers[n : n + self.batch] for n in range(0, len(answers), self.batch)]
        found = await asyncio.gather(*(self._sheet(task, reference, part) for part in sheets))
        return [grades for part in found for grades in part]

    @group_reward
    async def __call__(self, episodes: Sequence[Episode]) -> list[Score | None]:
        """The scores of a group's episodes: the weighted mean of the grades, each a component."""
        task = episodes[0].task
        reference = "" if task.answer is None or not self.with_answer else _words(task.answer)
        found = await self.grade(
            task.prompt_text, reference, [episode.completion for episode in episodes]
        )
        return [None if grades is None else self.score_of(grades) for grades in found]

    async def aclose(self) -> None:
        """End the connections, if they are its own."""
        own, self._own, self._asker = self._own, None, None
        if own is not None:
            await own.aclose()

    def score_of(self, grades: Mapping[str, float]) -> Score:
        """The weighted mean of an answer's grades."""
        weights = {criterion.name: criterion.weight for criterion in self.criteria_in()}
        total = sum(weights.values())
        value = sum(weights[name] * grade for name, grade in grades.items()) / total
        return Score(value=value, components=dict(grades))

    async def _sheet(
        self, task: str, reference: str, answers: Sequence[str]
    ) -> list[dict[str, float] | None]:
        criteria = {criterion.name: criterion.about for criterion in self.criteria_in()}
        sheet = make_sheet(
            task,
            reference,
            answers,
            criteria,
            top=self.top,
            seed=self.seed,
            with_canary=self._draws_canary(task, answers),
        )
        grades = await self._here().grades(sheet, list(criteria), self.top)
        if grades is None:
            return [None] * len(answers)
        if sheet.canary is not None and max(grades[sheet.canary].values()) > self.canary_limit:
            self._believed += 1
            return [None] * len(answers)
        return [grades[label] for label in sheet.labels]

    def _draws_canary(self, task: str, answers: Sequence[str]) -> bool:
        told = json.dumps([self.seed, task, list(answers)]).encode()
        return int.from_bytes(hashlib.sha256(told).digest()[:4], "big") < self.canaries * 2**32

    def _here(self) -> Asker:
        loop = asyncio.get_running_loop()
        if self._asker is None or self._loop is not loop:
            if self.endpoint is None:
                raise RewardError(
                    "the judge has nobody to ask",
                    fix="give endpoint=Endpoint(base_url=…, model=…), or a policy by using(…)",
                )
            self._own = EndpointPolicy(self.endpoint)
            self._asker = self._made(self._own, self.endpoint.model)
            self._loop = loop
        return self._asker

    def _made(self, policy: Policy, name: str) -> Asker:
        return Asker(
            policy,
            FolderMemory(cache_directory() / "judges") if self.remember else None,
            name=name,
            attempts=self.attempts,
            max_requests=self.max_requests,
            max_tokens=self.max_tokens,
            concurrency=self.concurrency,
        )


class LlmJudge(JudgeSettings):
    """Grades answers by one question."""

    question: str = "Is the answer correct and complete?"

    def criteria_in(self) -> tuple[Criterion, ...]:
        """See `JudgeSettings`."""
        return (Criterion(name="grade", about=self.question),)


class Rubric(JudgeSettings):
    """Grades answers by several criteria, which become the score's components."""

    criteria: tuple[Criterion, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> Rubric:
        names = [criterion.name for criterion in self.criteria]
        if len(set(names)) < len(names):
            raise ValueError("two criteria have the same name")
        return self

    def criteria_in(self) -> tuple[Criterion, ...]:
        """See `JudgeSettings`."""
        return self.criteria


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
