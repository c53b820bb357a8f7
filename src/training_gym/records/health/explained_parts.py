"""The parts of an explanation, each with the episodes that show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from training_gym.records.health.compared import Compared
from training_gym.records.health.decomposition import length_classes, split_by
from training_gym.records.health.history import Facts
from training_gym.records.health.plays import Play, Plays
from training_gym.records.health.rule import shown
from training_gym.records.means import mean_of
from training_gym.spec.settings import Settings

FLIPPED = 0.25
"""Change of a task's mean reward, as a share of the rewards' range, that counts as a flip."""
SHOWN_FLIPS = 5

Kind = Literal["change", "component", "length", "outcome", "signal", "task", "evaluation", "cause"]


class Part(Settings):
    """One piece of the explanation."""

    kind: Kind
    name: str
    effect: float | None = None
    """What it contributed to the change of the mean reward, where it is part of the sum."""
    before: float | None = None
    after: float | None = None
    text: str
    episodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ends:
    """The plays at both ends of a run, and which steps they come from."""

    before: list[Play]
    after: list[Play]
    steps: tuple[tuple[int, int], tuple[int, int]]
    facts: Facts

    @property
    def scale(self) -> float:
        """Range of the rewards at both ends."""
        rewards = [play.reward or 0.0 for play in (*self.before, *self.after)]
        return max(rewards) - min(rewards)


def all_parts(ends: Ends, compared: Sequence[Compared]) -> list[Part]:
    """Components, lengths, outcomes, signal, tasks and evaluations, in this order."""
    return [
        *_components(ends),
        *_lengths(ends),
        *_outcomes(ends),
        *_signal(ends),
        *_tasks(ends),
        *_evaluations(compared),
    ]


def rewards_of(plays: Sequence[Play]) -> list[float]:
    """The rewards of those that have one."""
    return [play.reward for play in plays if play.reward is not None]


def _components(ends: Ends) -> Iterator[Part]:
    """What each component of the reward contributed, by its weight where the recipe names one."""
    old, new = Plays(tuple(ends.before)).component_means, Plays(tuple(ends.after)).component_means
    weights = ends.facts.weights
    for name in sorted(old.keys() & new.keys()):
        if "." in name and name not in weights:
            continue  # a detail of another component
        weight = weights.get(name, 1.0) if weights else None
        effect = None if weight is None else weight * (new[name] - old[name])
        best = sorted(ends.after, key=lambda play: (-play.components.get(name, 0.0), play.id))
        said = "" if effect is None else f" ({effect:+.3g} of the reward)"
        yield Part(
            kind="component",
            name=name,
            effect=effect,
            before=old[name],
            after=new[name],
            text=f"component {name}: {old[name]:.3g} → {new[name]:.3g}{said}",
            episodes=shown(best[:3]),
        )


def _lengths(ends: Ends) -> Iterator[Part]:
    """How much of the change is due to other lengths, and how much came at equal length."""
    before, after = (
        mean_of([float(play.length) for play in plays]) for plays in (ends.before, ends.after)
    )
    split = split_by(ends.before, ends.after, length_classes([*ends.before, *ends.after]))
    effect = None if split is None else split.shares
    said = (
        ""
        if split is None
        else f": other lengths make {split.shares:+.3g} of the change, better answers of equal "
        f"length {split.rewards:+.3g}"
    )
    longest = sorted(ends.after, key=lambda play: (-play.length, play.id))
    yield Part(
        kind="length",
        name="length",
        effect=effect,
        before=before,
        after=after,
        text=f"mean length {before:.0f} → {after:.0f} tokens{said}",
        episodes=shown(longest[:3]),
    )


def _outcomes(ends: Ends) -> Iterator[Part]:
    """What truncation did."""
    old, new = (_share(plays, "truncated") for plays in (ends.before, ends.after))
    split = split_by(ends.before, ends.after, lambda play: play.status)
    if old == new == 0:
        return
    cut = [play for play in ends.after if play.status == "truncated"]
    said = "" if split is None else f": {split.shares:+.3g} of the change"
    yield Part(
        kind="outcome",
        name="truncated",
        effect=None if split is None else split.shares,
        before=old,
        after=new,
        text=f"truncated episodes {old:.0%} → {new:.0%}{said}",
        episodes=shown(cut[:3]),
    )


def _signal(ends: Ends) -> Iterator[Part]:
    """How much there was to learn from: groups whose rewards differ."""
    old, new = Plays(tuple(ends.before)), Plays(tuple(ends.after))
    if not old.groups or not new.groups:
        return
    shares = [len(part.equal_groups) / len(part.groups) for part in (old, new)]
    yield Part(
        kind="signal",
        name="zero_variance",
        before=shares[0],
        after=shares[1],
        text=f"groups with nothing to learn from {shares[0]:.0%} → {shares[1]:.0%}",
        episodes=shown(group[0] for group in new.equal_groups[:3]),
    )


def _tasks(ends: Ends) -> Iterator[Part]:
    """Tasks whose mean reward changed most, with their best or worst new episode."""
    old, new = _by_task(ends.before), _by_task(ends.after)
    moved = {
        task: mean_of(rewards_of(new[task])) - mean_of(rewards_of(old[task]))
        for task in old.keys() & new.keys()
    }
    ranked = sorted(moved, key=lambda task: (-abs(moved[task]), task))
    for task in [t for t in ranked if abs(moved[t]) >= FLIPPED * ends.scale > 0][:SHOWN_FLIPS]:
        risen = moved[task] > 0
        pick = max if risen else min
        example = pick(new[task], key=lambda play: (play.reward or 0.0, play.id))
        former = pick(old[task], key=lambda play: (-(play.reward or 0.0), play.id))
        means = mean_of(rewards_of(old[task])), mean_of(rewards_of(new[task]))
        yield Part(
            kind="task",
            name=task,
            before=means[0],
            after=means[1],
            text=f"task {task} {'rose' if risen else 'fell'}: {means[0]:.3g} → {means[1]:.3g}",
            episodes=(former.id, example.id),
        )


def _evaluations(compared: Sequence[Compared]) -> Iterator[Part]:
    """Each evaluation's two results, and the tasks that flipped in it."""
    for found in compared:
        old, new = found.before.task_means, found.after.task_means
        up = sorted(t for t in old.keys() & new.keys() if new[t] - old[t] > 0.5)
        down = sorted(t for t in old.keys() & new.keys() if old[t] - new[t] > 0.5)
        flips = f"; {len(up)} tasks flipped up, {len(down)} down" if up or down else ""
        change = f", {found.difference}" if found.way else ""
        step = found.after.optimizer_step
        yield Part(
            kind="evaluation",
            name=found.name,
            before=found.before.mean,
            after=found.after.mean,
            text=f"evaluation {found.name}: {found.before.mean:.3g} → {found.after.mean:.3g}"
            f"{change}{flips}",
            episodes=tuple(f"{found.name}-{step}-{t}.0" for t in (*down, *up)[:3]),
        )


def _by_task(plays: Sequence[Play]) -> dict[str, list[Play]]:
    found: dict[str, list[Play]] = {}
    for play in plays:
        found.setdefault(play.task, []).append(play)
    return found


def _share(plays: Sequence[Play], status: str) -> float:
    return sum(play.status == status for play in plays) / len(plays)
