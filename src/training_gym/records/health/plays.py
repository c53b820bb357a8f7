"""Training episodes as the rules see them: a few numbers each, without texts and tokens."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from training_gym.records.health.writing import (
    LEAST_CHARACTERS,
    answer_text,
    is_repetitive,
    tampering,
)
from training_gym.records.means import mean_of

EQUAL_BELOW = 1e-6
"""Rewards of a group that lie closer together than this are equal."""


@dataclass(frozen=True)
class Play:
    """One episode that was played to learn from."""

    id: str
    group: str
    task: str
    reward: float | None
    """None: it could not be judged."""
    components: Mapping[str, float]
    length: int
    """Tokens after the prompt; characters of the answer where no tokens were recorded."""
    status: str
    """See `spec.episodes.OutcomeStatus`."""
    attempts: int
    """Times it was played; all but the last failed for reasons of infrastructure."""
    text: int | None
    """Stands for the answer's text; None: too short to compare."""
    repetitive: bool
    tampering: str
    """How it meddled with what judges it; empty: not."""
    reason: str = ""
    time: float = 0.0

    @property
    def failures(self) -> int:
        """Attempts that failed for reasons of infrastructure."""
        return self.attempts - (self.status != "infrastructure_failed")


def read_play(record: Mapping[str, Any]) -> Play:
    """A play from a record of the `episodes` stream."""
    episode = record["episode"]
    prompt = episode["task"]["prompt"]
    messages = episode["messages"]
    own = messages[len(prompt) if isinstance(prompt, list) else 0 :]
    text = answer_text(own)
    score = episode.get("score") or {}
    tokens = sum(_own_tokens(path) for path in record.get("trajectories") or ())
    return Play(
        id=episode["id"],
        group=episode["group"],
        task=episode["task"]["id"],
        reward=_number(score.get("value")),
        components={
            name: float(value)
            for name, value in (score.get("components") or {}).items()
            if isinstance(value, int | float)
        },
        length=tokens or len(text),
        status=episode["outcome"]["status"],
        attempts=1 + episode.get("retries", 0),
        text=hash_of(text) if len(text) >= LEAST_CHARACTERS else None,
        repetitive=is_repetitive(text),
        tampering=tampering(own),
        reason=episode["outcome"].get("reason", ""),
        time=record["time"],
    )


def environment_of(record: Mapping[str, Any], default: str) -> str:
    """The environment an episode was played in: its task may name one, else it is the run's."""
    named = record["episode"]["task"].get("metadata", {}).get("environment")
    return named if isinstance(named, str) and named else default


def hash_of(text: str) -> int:
    """A number for a text, the same in every process."""
    import zlib

    data = text.encode("utf-8", "surrogatepass")
    return zlib.crc32(data) << 32 | zlib.adler32(data)


def _own_tokens(path: Mapping[str, Any]) -> int:
    return sum(count for name, _, count in path["tokens"]["columns"] if name == "ids")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True)
class Plays:
    """What one environment gave in one step. Shares are of what could be counted."""

    plays: tuple[Play, ...] = ()
    reported: Mapping[str, float] = field(default_factory=dict)
    """The step's metrics, for engines that record no episodes."""
    steps: tuple[tuple[Play, ...], ...] = ()
    """The plays by step, where they are of several: group names may return; empty: of one."""

    @cached_property
    def judged(self) -> tuple[Play, ...]:
        """Those with a reward."""
        return tuple(play for play in self.plays if play.reward is not None)

    @cached_property
    def rewards(self) -> tuple[float, ...]:
        """Rewards of the judged ones."""
        return tuple(play.reward for play in self.judged if play.reward is not None)

    @cached_property
    def groups(self) -> tuple[tuple[Play, ...], ...]:
        """Judged plays by group; groups of one are left out."""
        found: dict[tuple[int, str], list[Play]] = {}
        for number, step in enumerate(self.steps or (self.plays,)):
            for play in step:
                if play.reward is not None:
                    found.setdefault((number, play.group), []).append(play)
        return tuple(tuple(group) for group in found.values() if len(group) > 1)

    @cached_property
    def equal_groups(self) -> tuple[tuple[Play, ...], ...]:
        """Groups whose rewards are all equal: they teach nothing."""
        return tuple(group for group in self.groups if _spread(group) < EQUAL_BELOW)

    @cached_property
    def median_length(self) -> float | None:
        """Median length of the answers."""
        lengths = [play.length for play in self.plays if play.status != "infrastructure_failed"]
        return float(statistics.median(lengths)) if lengths else None

    @cached_property
    def component_means(self) -> dict[str, float]:
        """Mean of each component over the judged plays that have it."""
        values: dict[str, list[float]] = {}
        for play in self.judged:
            for name, value in play.components.items():
                values.setdefault(name, []).append(value)
        return {name: mean_of(found) for name, found in values.items()}

    @cached_property
    def duplicates(self) -> tuple[tuple[Play, ...], int]:
        """Plays whose text another member of their group gave as well; how many could be compared.

        Groups count whose answers are mostly long enough.
        """
        groups: dict[str, list[Play]] = {}
        for play in self.plays:
            groups.setdefault(play.group, []).append(play)
        twice: list[Play] = []
        compared = 0
        for members in groups.values():
            long = [play for play in members if play.text is not None]
            if len(members) < 2 or 2 * len(long) <= len(members):
                continue
            counts = Counter(play.text for play in long)
            twice += [play for play in long if counts[play.text] > 1]
            compared += len(members)
        return tuple(twice), compared

    def with_status(self, status: str) -> tuple[Play, ...]:
        """Plays that ended so."""
        return tuple(play for play in self.plays if play.status == status)


def joined(parts: Sequence[Plays]) -> Plays:
    """Several steps' plays as one."""
    steps = tuple(part.plays for part in parts)
    return Plays(tuple(play for step in steps for play in step), steps=steps)


def _spread(group: Sequence[Play]) -> float:
    rewards = [play.reward for play in group if play.reward is not None]
    return max(rewards) - min(rewards)
