"""The episodes of demo runs, with tokens, log-probabilities and columns for display."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from training_gym.records.demo import texts
from training_gym.records.demo.course import Moment
from training_gym.records.demo.shape import DemoShape
from training_gym.records.demo.texts import Vocabulary
from training_gym.spec.episodes import (
    PROMPT,
    SAMPLED,
    STOP,
    TOOL,
    Counters,
    Episode,
    Outcome,
    Score,
    Trajectory,
)
from training_gym.spec.messages import Message, assistant
from training_gym.spec.tasks import Task, content_id

ENVIRONMENTS = ("arithmetic", "python_tool")
LENGTH_REWARDED = 400
"""Words at which a reward for length is at its greatest."""


@dataclass(frozen=True)
class Play:
    """An episode and what is shown of its tokens."""

    episode: Episode
    columns: dict[str, list[float]]
    """For the tokens behind the prompt."""


class Player:
    """Plays episodes out of a seed."""

    def __init__(self, shape: DemoShape) -> None:
        """Of a run of this shape."""
        self.vocabulary = Vocabulary()
        self._shape = shape

    def task(self, number: int) -> Task:
        """The task of this number; each third one is played with a tool."""
        random = Random(f"task {self._shape.seed} {number}")
        text, result = texts.question(random)
        environment = ENVIRONMENTS[number % 3 == 0]
        if self._shape.kind == "hostile":
            text = f"{texts.HOSTILE[number % len(texts.HOSTILE)]} {text}"
        messages = texts.prompt(text, with_tool=environment == "python_tool")
        identity = content_id([number, text.encode(errors="replace").decode()])
        return Task(
            id=identity,
            prompt=messages,
            answer=result,
            metadata={"environment": environment, "difficulty": 1 + number % 5},
            split_key=identity,
        )

    def group(
        self, task: Task, key: str, now: Moment, counters: Counters, *, stream: str, size: int
    ) -> list[Play]:
        """The plays of one task."""
        random = Random(f"group {self._shape.seed} {key}")
        skill = now.skill if stream == "train" else now.held_out_skill
        alike = stream == "train" and random.random() < now.agreement
        right = [(random.random() < skill, random.random() < now.form) for _ in range(size)]
        if alike:
            right = [right[0]] * size
        copied = texts.answer(random, self._shape.answer_words, str(task.answer), padded=False)
        return [
            self._play(
                task,
                f"{key}.{member}",
                (key, member, stream),
                now,
                counters,
                right[member],
                copied if random.random() < now.repetition else None,
                random,
            )
            for member in range(size)
        ]

    def _play(
        self,
        task: Task,
        identity: str,
        place: tuple[str, int, str],
        now: Moment,
        counters: Counters,
        achieved: tuple[bool, bool],
        copied: str | None,
        random: Random,
    ) -> Play:
        failed = random.random() < now.failed and place[2] == "train"
        words = max(1, round(self._shape.answer_words * now.length * random.uniform(0.7, 1.3)))
        result = str(task.answer) if achieved[0] else str(random.randint(1, 999))
        said = copied or texts.answer(random, words, result, padded=now.padding > 0)
        if self._shape.kind == "hostile":
            said = f"{texts.HOSTILE[random.randrange(len(texts.HOSTILE))]} {said}"
        turns = self._turns(task, said, failed, random)
        truncated = not failed and random.random() < now.truncated
        path, columns = self._tokens(task, turns, now, counters, random)
        score = None if failed else self._score(achieved, words, truncated, now)
        outcome = Outcome(status="finished")
        if failed:
            outcome = Outcome(
                status="infrastructure_failed", reason="sandbox: connection refused by the provider"
            )
        elif truncated:
            outcome = Outcome(status="truncated", reason="answer ended by length")
        episode = Episode.model_construct(
            id=identity,
            task=task,
            group=place[0],
            member=place[1],
            stream=place[2],
            messages=(*task.prompt, *turns),
            trajectories=(path,),
            outcome=outcome,
            score=score,
            counters=counters,
            duration_s=round(random.uniform(2, 9) * now.length, 3),
            retries=int(failed),
        )
        return Play(episode, columns)

    def _turns(self, task: Task, said: str, failed: bool, random: Random) -> tuple[Message, ...]:
        if failed:
            return texts.failing_tool_turn(1)
        if task.metadata["environment"] != "python_tool":
            return (assistant(said),)
        called = texts.tool_turn(random.randint(2, 90), random.randint(2, 90), 1)
        return (*called, assistant(said))

    def _score(
        self, achieved: tuple[bool, bool], words: int, truncated: bool, now: Moment
    ) -> Score:
        correct = float(achieved[0])
        shaped = 0.0 if truncated else 0.2 * achieved[1]
        length = now.padding * min(1.0, words / LENGTH_REWARDED)
        components = {"correct": correct, "format": shaped}
        if now.padding:
            components["thorough"] = round(length, 4)
        return Score(value=round(correct + shaped + length, 4), components=components)

    def _tokens(
        self,
        task: Task,
        turns: tuple[Message, ...],
        now: Moment,
        counters: Counters,
        random: Random,
    ) -> tuple[Trajectory, dict[str, list[float]]]:
        ids = self.vocabulary.encode(task.prompt_text)
        before = len(ids)
        flags = [PROMPT] * before
        logprobs = [0.0] * before
        drawn: list[tuple[float, float]] = []
        for turn in turns:
            new = self.vocabulary.encode(turn.text)
            sampled = turn.role == "assistant"
            if sampled:
                new = [*new, 0]
            ids += new
            flags += [SAMPLED if sampled else TOOL] * len(new)
            for _ in new:
                entropy = min(5.0, random.expovariate(1 / max(now.entropy, 1e-3)))
                chance = -random.expovariate(1 / (0.05 + entropy)) if sampled else 0.0
                logprobs.append(round(chance, 4))
                drawn.append((entropy, random.gauss(0, now.mismatch * 1.25)))
            if sampled:
                flags[-1] |= STOP
        version = counters.policy_version or 0
        path = Trajectory.model_construct(
            agent="policy",
            token_ids=tuple(ids),
            flags=tuple(flags),
            logprobs=tuple(logprobs),
            versions=(-1,) * before
            + tuple(version if flag & SAMPLED else -1 for flag in flags[before:]),
            prompt_length=before,
            trained=None,
        )
        if not self._shape.columns:
            return path, {}
        own = list(zip(flags[before:], logprobs[before:], drawn, strict=True))
        return path, {
            "entropy": [e if flag & SAMPLED else math.nan for flag, _, (e, _) in own],
            "trainer_logprobs": [
                logprob + apart if flag & SAMPLED else math.nan for flag, logprob, (_, apart) in own
            ],
        }
