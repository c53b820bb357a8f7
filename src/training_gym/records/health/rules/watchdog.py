"""The watchdog: which component is stuck, from what processes say they are at and how long.

A piece of work is stuck once it has gone on for max(6 × the median of its kind, 5 minutes). It is
judged by the run's own clock, so a run that hung is found to have hung by a replay as well.
"""

from __future__ import annotations

from training_gym.records.health.history import Clock, History, Open
from training_gym.records.health.rule import Reading, Rule, graded
from training_gym.spec.health import Thresholds

COMPONENTS = ("generation", "environment", "reward", "training", "sync", "data", "disk")
"""What can be stuck. `paused` and `evaluation` hold others and never are themselves."""

REMEDIES = {
    "generation": "the sampler does not answer: look at its log and at the device",
    "environment": "an environment does not return: look at its sandbox or service, set "
    "episode_timeout_s",
    "reward": "a reward does not return: set reward_timeout_s, look for network calls in it",
    "training": "an update does not end: look at the device, and at swapping memory",
    "sync": "new weights do not reach the sampler: look at the network between the two",
    "data": "the next tasks do not come: look at the dataset's source",
    "disk": "a checkpoint or record is not written: look at the disk and what it is mounted from",
}


def limit_s(usual_s: float | None, limits: Thresholds) -> float:
    """Seconds after which work whose median duration is `usual_s` is stuck."""
    return max(limits.stall_factor * (usual_s or 0.0), limits.stall_floor_s)


def stuck(clock: Clock, limits: Thresholds) -> Open | None:
    """The piece of work that is stuck for longest beyond its limit."""
    over = [
        (work.age_s / limit_s(work.usual_s, limits), work)
        for work in clock.open
        if work.component in COMPONENTS
    ]
    worst = max(over, key=lambda pair: pair[0], default=None)
    return worst[1] if worst is not None and worst[0] > 1 else None


def stall(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Names what is stuck; where processes do not tell, that no step ends."""
    clock = history.clock
    if clock.paused:
        return Reading(0.0, "paused")
    work = stuck(clock, limits)
    if work is not None:
        usual = "" if work.usual_s is None else f", usually {_span(work.usual_s)}"
        return Reading(
            work.age_s,
            f"{work.component} has not moved for {_span(work.age_s)}{usual}",
            "critical",
            False,
            limit_s(work.usual_s, limits),
            at_once=True,
            subject=work.component,
            evidence=(work.what,) if work.what else (),
            details={"component": work.component, "remedy": REMEDIES[work.component]},
        )
    age, longest = clock.step_age_s, limit_s(clock.usual_step_s, limits)
    if clock.open or age is None or clock.usual_step_s is None or age <= longest:
        return Reading(0.0, "everything moves")
    return Reading(
        age,
        f"no step has ended for {_span(age)}, and this engine does not say what it is at",
        "critical",
        False,
        longest,
        at_once=True,
    )


def heartbeat(history: History, environment: str, limits: Thresholds) -> Reading | None:
    """Silence of a process: dead where the system says so, else unreachable."""
    clock = history.clock
    if not clock.silence_s:
        return None
    writer = max(clock.silence_s, key=lambda name: clock.silence_s[name])
    silence = clock.silence_s[writer]
    alive = clock.alive.get(writer)
    what = {None: "unreachable", True: "alive but silent", False: "dead"}[alive]
    message = f"{writer} is {what}: no heartbeat for {_span(silence)}"
    return graded(silence, limits.heartbeat_s, message, writer=writer, state=what)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{seconds:.1f} s" if seconds < 10 else f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


RULES = (
    Rule(
        name="stall",
        title="Stuck component",
        measure=stall,
        scope="clock",
        explanations=(
            "that component waits for something that never comes",
            "one piece of work is far larger than the others",
            "the machine is overloaded or swaps",
        ),
        next=(
            "training-gym logs {run}",
            "ask it to stop with a checkpoint: training-gym runs stop {run}; then resume it",
        ),
        source="miles: 30 minutes; the factor 6 and 5 minutes are ours",
        points=1,
    ),
    Rule(
        name="heartbeat",
        title="Silent process",
        measure=heartbeat,
        scope="clock",
        explanations=(
            "the process is dead, stopped or starved of processor time",
            "its machine or network is down",
        ),
        next=(
            "training-gym runs show {run} says whether the process is there",
            "resume it once it is gone: training-gym runs resume {run}",
        ),
        source="ours",
        points=2,
    ),
)
