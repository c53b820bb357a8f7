"""Why the reward moved or did not: the change taken apart, with the episodes that show each part.

Text made from records by arithmetic alone: the same run always gets the same explanation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from training_gym.records.health.causes import why_flat
from training_gym.records.health.compared import Compared, compared_evaluations
from training_gym.records.health.decomposition import Change, change_of
from training_gym.records.health.explained_parts import Ends, Part, all_parts, rewards_of
from training_gym.records.health.facts import facts_of
from training_gym.records.health.plays import Play, read_play
from training_gym.records.readers import read_stream
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import RecordsError
from training_gym.spec.settings import Settings

WINDOW_SHARE = 0.2
"""Share of the steps at either end that are compared."""
LONGEST_WINDOW = 20


class Explanation(Settings):
    """Why the reward moved or did not."""

    run_id: str
    steps_before: tuple[int, int]
    """First and last of the steps compared with …"""
    steps_after: tuple[int, int]
    """… these."""
    difference: float
    standard_error: float
    moved: bool
    """Whether the difference is more than two standard errors."""
    summary: str
    parts: tuple[Part, ...]


def explain(
    run: RunDirectory | Path, *, before: int | None = None, after: int | None = None
) -> Explanation:
    """Compare the first steps with the last.

    Args:
        run: whose records.
        before: compare with the steps around this one; None: with the first.
        after: the steps around this one; None: the last.

    Raises:
        RecordsError: too few steps, one that there is not, or an earlier one behind the later.
    """
    directory = run if isinstance(run, RunDirectory) else RunDirectory(run)
    ends = _ends(directory, before, after)
    total = change_of(rewards_of(ends.before), rewards_of(ends.after))
    compared = compared_evaluations(directory, ends.steps[0][0], ends.steps[1][1])
    moved = next((found for found in compared if found.way), None)
    parts = all_parts(ends, compared)
    if not total.is_clear and (cause := why_flat(ends, moved)):
        parts.append(cause)
    summary = _summary(total, ends, parts, moved)
    return Explanation(
        run_id=directory.run_id,
        steps_before=ends.steps[0],
        steps_after=ends.steps[1],
        difference=total.difference,
        standard_error=total.error,
        moved=total.is_clear,
        summary=summary,
        parts=tuple(parts),
    )


def _ends(run: RunDirectory, before: int | None, after: int | None) -> Ends:
    steps: dict[int, list[Play]] = {}
    for record in read_stream(run, "episodes"):
        if record["episode"]["stream"] == "train" and record["batch"] is not None:
            play = read_play(record)
            if play.reward is not None:
                steps.setdefault(record["batch"] + 1, []).append(play)  # played before it counted
    numbers = sorted(steps)
    if len(numbers) < 2:
        raise RecordsError(
            f"run {run.run_id} has {len(numbers)} steps with judged episodes: nothing to compare",
            fix=f"wait for a few steps, or see how it ended: training-gym runs show {run.run_id}",
        )
    first, last = _windows(numbers, before, after)
    return Ends(
        before=[play for number in first for play in steps[number]],
        after=[play for number in last for play in steps[number]],
        steps=((first[0], first[-1]), (last[0], last[-1])),
        facts=facts_of(run),
    )


def _windows(
    numbers: list[int], before: int | None, after: int | None
) -> tuple[list[int], list[int]]:
    """Steps at both ends: fewer of them where two that were named lie close to each other."""
    earlier = numbers[0] if before is None else _known(numbers, before)
    later = numbers[-1] if after is None else _known(numbers, after)
    if earlier >= later:
        raise RecordsError(
            f"step {earlier} is not before step {later}: nothing to compare",
            fix=f"name an earlier and a later one of {_told(numbers)}",
        )
    size = min(max(int(WINDOW_SHARE * len(numbers)), 1), LONGEST_WINDOW)
    first, last = _around(numbers, earlier, size), _around(numbers, later, size)
    while first[-1] >= last[0]:
        size -= 1
        first, last = _around(numbers, earlier, size), _around(numbers, later, size)
    return first, last


def _around(numbers: list[int], step: int, size: int) -> list[int]:
    at = numbers.index(step)
    start = max(0, min(at - size // 2, len(numbers) - size))
    return numbers[start : start + size]


def _known(numbers: list[int], step: int) -> int:
    """The step with episodes that is nearest; raises `RecordsError` outside of all of them."""
    if not numbers[0] <= step <= numbers[-1]:
        raise RecordsError(
            f"there is no step {step} with judged episodes", fix=f"name one of {_told(numbers)}"
        )
    return min(numbers, key=lambda known: abs(known - step))


def _told(numbers: list[int]) -> str:
    return f"the steps {numbers[0]} to {numbers[-1]}"


def _summary(total: Change, ends: Ends, parts: Sequence[Part], moved: Compared | None) -> str:
    (_, _), (first, last) = ends.steps
    course = f"{total.before:.3g} → {total.after:.3g} ({total.difference:+.3g} ± {total.error:.2g})"
    if not total.is_clear:
        yet = "" if moved is None else f", but evaluation {moved.name} {moved.way}"
        return (
            f"the mean reward did not move beyond noise: {course} by steps {first} to {last}{yet}"
        )
    named = [part for part in parts if part.effect is not None]
    main = max(
        (part for part in named if (part.effect or 0) * total.difference > 0),
        key=lambda part: abs(part.effect or 0.0),
        default=None,
    )
    share = 0.0 if main is None else abs((main.effect or 0.0) / total.difference)
    because = (
        f", most of it from {main.kind} {main.name}".replace("length length", "other lengths")
        if main is not None and share > 0.5
        else ", mostly at equal lengths and outcomes"
    )
    way = "rose" if total.difference > 0 else "fell"
    return f"the mean reward {way}: {course} by steps {first} to {last}{because}"
