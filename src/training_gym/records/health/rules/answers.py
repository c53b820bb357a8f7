"""Rules about what is answered: lengths, truncation, copies, repetition, hacks of the reward."""

from __future__ import annotations

import re
import statistics

from training_gym.records.health.history import History
from training_gym.records.health.plays import Play, Plays, joined
from training_gym.records.health.rule import Reading, Rule, graded, shown
from training_gym.records.health.series import rank_correlation
from training_gym.records.means import mean_of
from training_gym.spec.health import Bounds, Thresholds

WINDOW, FEWEST_GROUPS = 5, 6
ABOUT_FORM = re.compile(r"format|length|brief|short|long|concise|tag|style|think", re.I)
"""Components by whose name one sees that they reward the form, not the content."""


def length_drift(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Median length against its reference: the factor, whichever way."""
    usual = history.of_plays(environment, lambda plays: plays.median_length)
    now = history.plays(environment, 1)[-1].median_length
    if not usual or not now or history.last.number <= 5:
        return None
    factor = max(now / usual, usual / now)
    way = "longer" if now > usual else "shorter"
    message = f"answers became {factor:.1f}× {way} (median {usual:.0f} → {now:.0f})"
    extreme = sorted(
        history.plays(environment, 1)[-1].plays, key=lambda play: (abs(play.length - now), play.id)
    )
    return graded(factor, limits.length_drift, message, extreme, median=now, reference=usual)


def length_reward(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Rank correlation of length and reward within groups, while lengths go the rewarded way."""
    together = joined(history.plays(environment, WINDOW))
    usual = _first_length(history, environment)
    found = [_length_correlation(group) for group in together.groups]
    known = [value for value in found if value is not None]
    now = together.median_length
    if len(known) < FEWEST_GROUPS or not usual or not now:
        return None
    value = mean_of(known)
    moved = now / usual
    follows = moved > MOVED if value > 0 else moved < 1 / MOVED
    way = "longer" if value > 0 else "shorter"
    message = (
        f"reward goes with {way} answers (rank correlation {value:.2f}), and they become {way}"
    )
    if not follows:
        return Reading(abs(value), message)
    best = sorted(together.judged, key=lambda play: (-(play.reward or 0.0), -play.length, play.id))
    return graded(abs(value), limits.length_reward, message, best, moved=moved)


MOVED = 1.25
"""Factor by which lengths must have moved for a correlation with reward to matter."""


def truncation(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Share of episodes that a limit ended."""
    newest = history.plays(environment, 1)[-1]
    if not newest.plays:
        share = newest.reported.get("truncated_share")
        cut: tuple[Play, ...] = ()
    else:
        cut = newest.with_status("truncated")
        share = len(cut) / len(newest.plays)
    if share is None:
        return None
    return graded(share, limits.truncation, f"{share:.0%} of the episodes were cut off", cut)


def duplicates(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Share of the answers that another member of the group gave word for word."""
    found = [part.duplicates for part in history.plays(environment, 3)]
    compared = sum(count for _, count in found)
    if compared == 0:
        return None
    twice = [play for plays, _ in found for play in plays]
    share = len(twice) / compared
    message = f"{share:.0%} of the answers are copies within their group"
    return graded(share, limits.duplicates, message, twice[::-1])


def repetition(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Share of the answers that repeat themselves."""
    plays = joined(history.plays(environment, 3)).plays
    if not plays:
        return None
    found = [play for play in plays if play.repetitive]
    share = len(found) / len(plays)
    message = f"{share:.0%} of the answers repeat themselves"
    return graded(share, limits.repetition, message, found[::-1])


def tampering(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Share of the episodes that meddle with what judges them; the first one counts."""
    plays = joined(history.plays(environment, 50)).plays
    found = [play for play in plays if play.tampering]
    if not plays:
        return None
    share = len(found) / len(plays)
    what = statistics.mode(play.tampering for play in found) if found else "none"
    message = f"{len(found)} of {len(plays)} episodes tamper: {what}"
    reading = graded(share, limits.tampering, message, found[::-1])
    return Reading(
        share,
        message,
        reading.severity,
        reading.clear,
        reading.threshold,
        at_once=True,
        evidence=reading.evidence,
        details={"judge_these": list(worth_judging(plays))},
    )


def worth_judging(plays: tuple[Play, ...], count: int = 16) -> tuple[str, ...]:
    """Episodes to show a judge who looks for hacks: the best paid, each of another group."""
    by_reward = sorted(
        (play for play in plays if play.reward is not None),
        key=lambda play: (-(play.reward or 0.0), play.id),
    )
    first: dict[str, Play] = {}
    for play in by_reward:
        first.setdefault(play.group, play)
    return tuple(play.id for play in list(first.values())[:count])


def reward_concentration(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Share of the reward's gain since steps 3 to 12 that one component made."""
    early, now = history.early_plays(environment), history.plays(environment, WINDOW)
    if len(early) < 3 or len(now) < 3 or history.last.number <= 12:
        return None
    gains = _gains(early, now, history.facts.weights)
    if len(gains) < 2:
        return None
    total = sum(gain for gain in gains.values() if gain > 0)
    before, after = joined(early).rewards, joined(now).rewards
    rose = bool(before) and bool(after) and statistics.fmean(after) > statistics.fmean(before)
    name = max(gains, key=lambda component: gains[component])
    share = gains[name] / total if total > 0 else 0.0
    message = f"{name} made {share:.0%} of the gain in reward"
    others_gained = any(gain > 0.02 * total for other, gain in gains.items() if other != name)
    if not rose or total <= 0 or total < 0.25 * statistics.pstdev(before):
        return Reading(share, message)
    if ABOUT_FORM.search(name):
        bounds = Bounds(
            warning=limits.format_concentration, critical=limits.reward_concentration.critical
        )
    elif not others_gained:
        bounds = limits.reward_concentration
    else:
        return Reading(share, message)
    best = sorted(joined(now).judged, key=lambda play: (-play.components.get(name, 0.0), play.id))
    reading = graded(share, bounds, message, best, gains=dict(gains))
    content_fell = min(gains.values()) < -0.1 * total
    if reading.severity == "critical" and not content_fell:
        return Reading(
            share, message, "warning", False, reading.threshold, evidence=shown(best),
            details=reading.details,
        )  # fmt: skip
    return reading


def _gains(early: list[Plays], now: list[Plays], weights: object) -> dict[str, float]:
    """Weighted gain of each top-level component."""
    before, after = joined(early).component_means, joined(now).component_means
    known = weights if isinstance(weights, dict) else {}
    names = [name for name in before.keys() & after.keys() if "." not in name or name in known]
    return {name: known.get(name, 1.0) * (after[name] - before[name]) for name in sorted(names)}


def _first_length(history: History, environment: str) -> float | None:
    """Median length in the first three steps: a hack may be complete before step 12."""
    first = [step.environments.get(environment) for step in history.early[:3]]
    return joined([plays for plays in first if plays is not None]).median_length


def _length_correlation(group: tuple[Play, ...]) -> float | None:
    rewards = [play.reward for play in group if play.reward is not None]
    return rank_correlation([float(play.length) for play in group], rewards)


RULES = (
    Rule(
        name="length_drift",
        title="Length drift",
        measure=length_drift,
        scope="environment",
        explanations=(
            "the reward pays for length, or for brevity, as such",
            "the loss favours one: averages over tokens weigh long answers more",
            "the model learned to reason more, or to stop where it has nothing to add",
        ),
        next=(
            "read the longest and the shortest episodes: training-gym episodes {run}",
            "compare reward and length within groups: alert length_reward",
            "use DrGRPO, or an overlong penalty, if the content did not improve",
        ),
        source="bounds 0.5 and 2 are ours",
    ),
    Rule(
        name="length_reward",
        title="Reward follows length",
        measure=length_reward,
        scope="environment",
        explanations=(
            "the reward can be raised by length alone: a hack",
            "better answers really need more (or fewer) words",
        ),
        next=(
            "read the best paid episodes: is what made them longer worth anything?",
            "judge lengths against the group, or cap what a longer answer can earn",
        ),
        source="ours",
    ),
    Rule(
        name="truncation",
        title="Truncated episodes",
        measure=truncation,
        scope="environment",
        explanations=(
            "max_response_tokens, max_turns or episode_timeout_s is too low for this model",
            "answers grow without end: compare length and repetition",
            "the model does not know its end-of-turn token",
        ),
        next=(
            "look at where they were cut: training-gym episodes {run}",
            "raise the limit that cut them, or penalise overlong answers (DAPO)",
        ),
        source="miles warns at 0.25",
    ),
    Rule(
        name="reward_concentration",
        title="One component makes the gain",
        measure=reward_concentration,
        scope="environment",
        explanations=(
            "that component is easier to please than the others: a hack",
            "the others are at their best already",
            "the format comes first, content follows: wait a little if it is early",
        ),
        next=(
            "training-gym explain {run} shows every component and the episodes behind it",
            "lower that component's weight, or make it count only where the answer is right",
        ),
        source="ours",
    ),
    Rule(
        name="duplicates",
        title="Copies within a group",
        measure=duplicates,
        scope="environment",
        explanations=(
            "the policy has become deterministic",
            "the temperature is too low, or the sampler repeats its random numbers",
        ),
        next=(
            "look at one group side by side: training-gym episodes {run}",
            "raise the temperature; lower the learning rate if entropy fell as well",
        ),
        source="ours",
    ),
    Rule(
        name="repetition",
        title="Answers that repeat themselves",
        measure=repetition,
        scope="environment",
        explanations=(
            "the reward pays for length or keywords",
            "the policy degenerates: updates too large, or lengths without a bound",
        ),
        next=(
            "read such an episode: training-gym episodes {run}",
            "penalise repetition in the reward, or stop earlier",
        ),
        source="slime logs a repetition share; the bound is ours",
    ),
    Rule(
        name="tampering",
        title="Meddling with tests or grader",
        measure=tampering,
        scope="environment",
        explanations=(
            "the agent found that changing what judges it pays",
            "a task legitimately asks for changes to tests",
        ),
        next=(
            "read the episodes, then let a model judge the best paid: training-gym explain --judge",
            "grade in a fresh sandbox with the original tests; make them read-only",
        ),
        source="ours; text patterns only, deliberately narrow",
    ),
)
