"""How long one synchronous step takes: R rollouts of one action each, S sandboxes at a time.

A policy that waits for all its rollouts waits for the last of them. The step is played event by
event with numbered draws, so that a row of the table is a pure function of its values.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator, Sequence

from pydantic import Field

from training_gym.spec.settings import Settings


class Step(Settings):
    """One synchronous step. Actions are lognormal, cut at the limit."""

    rollouts: int = Field(10_000, gt=0)
    longest_s: float = Field(10.0, gt=0)
    """Limit of one action, seconds; a sandbox that died is noticed only then."""
    median_s: float = Field(3.0, gt=0)
    """Median of one action, seconds."""
    sigma: float = Field(0.8, ge=0)
    """Standard deviation of the action's logarithm."""
    start_s: float = Field(0.3, ge=0)
    """Seconds to start a sandbox."""
    death: float = Field(0.01, ge=0, lt=1)
    """Share of the sandboxes that die under an action; each is retried in a fresh one."""
    create_limit_per_s: float = Field(40.0, gt=0)


class StepRow(Settings):
    """One line of the table, seconds from the first start to the last end."""

    concurrent: int
    worst_s: float
    """Every action takes its limit: `⌈R/S⌉ · limit`."""
    typical_s: float
    """Actions as long as they are; starts cost nothing; nothing dies."""
    deaths_s: float
    """With starts and deaths."""
    single_use_s: float
    """With starts and deaths, each sandbox used once and creation limited."""


CONCURRENT: Sequence[int] = (100, 250, 500, 1000, 2000, 5000, 10_000)
"""The table's rows."""


def table(step: Step, concurrent: Sequence[int] = CONCURRENT, *, seed: int = 0) -> list[StepRow]:
    """The step at several widths."""
    free = step.changed(start_s=0.0, death=0.0)
    return [
        StepRow(
            concurrent=width,
            worst_s=math.ceil(step.rollouts / width) * step.longest_s,
            typical_s=step_s(free, width, seed=seed),
            deaths_s=step_s(step, width, seed=seed),
            single_use_s=step_s(step, width, create_per_s=step.create_limit_per_s, seed=seed),
        )
        for width in concurrent
    ]


def step_s(step: Step, concurrent: int, *, create_per_s: float = math.inf, seed: int = 0) -> float:
    """Seconds until the last rollout has acted, by list scheduling over `concurrent` places.

    Creations are `1/create_per_s` apart; a rollout whose sandbox died keeps its place and begins
    again there.
    """
    draws = _attempts(step, seed)
    places = [(0.0, False)] * min(concurrent, step.rollouts)
    waiting, next_create, end = step.rollouts, 0.0, 0.0
    while places:
        free_at, died = heapq.heappop(places)
        if not died:
            if not waiting:
                continue
            waiting -= 1
        created_at = max(free_at, next_create)
        next_create = created_at + 1.0 / create_per_s
        action_s, dies = next(draws)
        done = created_at + step.start_s + action_s
        end = max(end, done)
        heapq.heappush(places, (done, dies))
    return end


def floor_s(step: Step) -> float:
    """No width beats this when every rollout needs its own sandbox: `R/c + limit`."""
    return step.rollouts / step.create_limit_per_s + step.longest_s


def _attempts(step: Step, seed: int) -> Iterator[tuple[float, bool]]:
    """Endlessly: seconds that an attempt holds its sandbox, and whether the sandbox dies."""
    draw = random.Random(seed)
    while True:
        if draw.random() < step.death:
            yield step.longest_s, True
        else:
            length = step.median_s * math.exp(step.sigma * draw.gauss(0.0, 1.0))
            yield min(step.longest_s, length), False
