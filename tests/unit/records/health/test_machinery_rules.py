import pytest

from training_gym.records.health.history import Clock, History, Open, Step
from training_gym.records.health.occupation import Interval, occupation
from training_gym.records.health.plays import Plays
from training_gym.records.health.rules import machinery, watchdog
from training_gym.spec.health import Thresholds

LIMITS = Thresholds()


def failing(play, share, now=1000.0, count=120):
    failed = int(share * count)
    return Plays(
        tuple(
            play(
                status="infrastructure_failed" if n < failed else "finished",
                reward=None if n < failed else 1.0,
                reason="503" if n < failed else "",
                time=now,
            )
            for n in range(count)
        )
    )


@pytest.mark.parametrize(("share", "severity"), [(0.04, None), (0.1, "warning"), (0.3, "critical")])
def test_infrastructure_is_a_share_of_the_attempts_in_half_an_hour(history, play, share, severity):
    found = machinery.infrastructure(
        history(plays=[failing(play, share, now=100.0)]), "env", LIMITS
    )
    assert found.severity == severity
    assert severity is None or found.details["reasons"] == {"503": int(share * 120)}


def test_few_or_old_attempts_tell_nothing_of_infrastructure(history, play):
    few = [failing(play, 0.5, now=100.0, count=50)]
    assert machinery.infrastructure(history(plays=few), "env", LIMITS) is None
    old = [failing(play, 0.5, now=-5000.0)]
    assert machinery.infrastructure(history(plays=old), "env", LIMITS) is None


def test_a_retry_that_worked_counts_as_a_failed_attempt(history, play):
    part = Plays(tuple(play(attempts=2, time=100.0) for _ in range(60)))
    found = machinery.infrastructure(history(plays=[part]), "env", LIMITS)
    assert found.value == 0.5


def test_occupation_blames_who_was_at_work_while_the_accelerator_was_not():
    intervals = [
        Interval("environment", 0.0, 6.0),
        Interval("generation", 1.0, 3.0),
        Interval("generation", 2.0, 4.0),
        Interval("reward", 5.0, 7.0),
        Interval("training", 8.0, 9.0),
    ]
    busy, blame = occupation(intervals, 0.0, 10.0)
    assert busy == pytest.approx(4.0)
    assert blame == pytest.approx({"environment": 2.0, "reward": 2.0, "unknown": 2.0})


def test_nothing_is_said_of_an_accelerator_that_nobody_measured():
    assert occupation([Interval("reward", 0.0, 1.0)], 0.0, 2.0) == (None, {})
    assert occupation([Interval("training", 0.0, 1.0)], 2.0, 2.0) == (None, {})


@pytest.mark.parametrize(("busy", "severity"), [(8.0, None), (6.0, "warning"), (3.0, "critical")])
def test_idle_accelerator(busy, severity):
    steps = tuple(
        Step(n, 1.0, {"step_seconds": 10.0}, busy_s=busy, blame_s={"reward": 10 - busy})
        for n in (1, 2, 3)
    )
    found = machinery.accelerator_idle(History(recent=steps), "", LIMITS)
    assert found.severity == severity
    assert "waiting for reward" in found.message


@pytest.mark.parametrize(("dropped", "severity"), [(0, None), (1, "warning"), (50, "critical")])
def test_telemetry_loss_warns_at_the_first_dropped_record(history, dropped, severity):
    found = machinery.telemetry_loss(history([{}], dropped=dropped, written=1000), "", LIMITS)
    assert found.severity == severity


def stall(**clock):
    return watchdog.stall(History(clock=Clock(0.0, **clock)), "", LIMITS)


@pytest.mark.parametrize("component", watchdog.COMPONENTS)
def test_the_watchdog_names_the_stuck_component(component):
    work = Open(component, age_s=400.0, usual_s=10.0, what="3-1.0")
    found = stall(open=(Open("generation", 2.0, usual_s=1.0), work))
    assert found.severity == "critical"
    assert found.message.startswith(f"{component} has not moved for 6 min")
    assert found.details["component"] == component
    assert found.evidence == ("3-1.0",)


@pytest.mark.parametrize(
    ("age", "usual", "expected"),
    [(299, 1, False), (301, 1, True), (599, 100, False), (601, 100, True), (301, None, True)],
)
def test_stuck_means_six_medians_but_at_least_the_floor(age, usual, expected):
    found = watchdog.stuck(Clock(0.0, open=(Open("reward", age, usual_s=usual),)), LIMITS)
    assert (found is not None) is expected


def test_what_holds_others_is_not_stuck_itself():
    assert stall(open=(Open("evaluation", 1e5), Open("paused", 1e5))).severity is None
    assert stall(paused=True, step_age_s=1e5, usual_step_s=1.0).severity is None


def test_an_engine_that_does_not_tell_is_judged_by_its_steps():
    assert stall(step_age_s=400.0, usual_step_s=1.0).severity == "critical"
    assert stall(step_age_s=400.0, usual_step_s=100.0).severity is None
    assert stall(step_age_s=400.0).severity is None  # nothing to compare with yet


def test_a_heartbeat_tells_dead_from_unreachable():
    def beat(silence, **alive):
        clock = Clock(0.0, silence_s={"engine": silence, "runner": 1.0}, alive=alive)
        return watchdog.heartbeat(History(clock=clock), "", LIMITS)

    assert beat(12.0).severity is None
    assert beat(40.0).severity == "warning"
    assert beat(400.0).severity == "critical"
    assert beat(40.0).message == "engine is unreachable: no heartbeat for 40 s"
    assert "alive but silent" in beat(40.0, engine=True).message
    assert "dead" in beat(40.0, engine=False).message
