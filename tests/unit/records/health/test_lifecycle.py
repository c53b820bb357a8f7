from training_gym.records.health.lifecycle import REFRESH, Gauge
from training_gym.records.health.rule import Reading
from training_gym.records.health.rules import RULES

RULE = next(rule for rule in RULES if rule.name == "truncation")
FINE, NEAR = Reading(0.0, "fine"), Reading(0.0, "near", clear=False)
BAD = Reading(0.3, "bad", "warning", False, 0.25, evidence=("1-1.0",))
WORSE = Reading(0.6, "worse", "critical", False, 0.5)


def run(*readings, rule=RULE):
    """The changes, by step."""
    gauge = Gauge(rule, "env", "r1")
    found = {}
    for step, reading in enumerate(readings, start=1):
        changed = gauge.take(reading, step, 10.0 * step)
        if changed is not None:
            found[step] = changed
    return found


def test_an_alert_opens_at_the_third_bad_point_and_tells_when_it_began():
    found = run(FINE, BAD, BAD, FINE, BAD, BAD, BAD)
    assert list(found) == [7]
    alert = found[7]
    assert (alert.first_step, alert.last_step, alert.opened_at) == (5, 7, 70.0)
    assert alert.id == "truncation/env/5"
    assert alert.evidence == ("1-1.0",)
    assert alert.explanations
    assert alert.source
    assert alert.next[0].endswith("training-gym episodes r1")


def test_one_point_is_enough_where_the_rule_says_so():
    at_once = Reading(1.0, "no", "critical", False, at_once=True)
    assert list(run(FINE, at_once)) == [2]


def test_worse_readings_escalate_once():
    found = run(BAD, BAD, BAD, WORSE, WORSE, WORSE, WORSE)
    assert {step: alert.severity for step, alert in found.items()} == {3: "warning", 6: "critical"}
    assert found[6].id == found[3].id
    assert (found[3].worsened_at, found[6].worsened_at) == (0.0, 60.0)


def test_it_resolves_after_five_clear_points_and_not_in_between():
    found = run(*[BAD] * 3, *[FINE] * 4, NEAR, *[FINE] * 5)
    assert list(found) == [3, 13]
    assert found[13].state == "resolved"
    assert found[13].details["resolved_by"] == "fine"


def test_swinging_about_the_threshold_makes_one_alert():
    found = run(*[BAD] * 3, *[NEAR, BAD] * 4)
    assert list(found) == [3]


def test_a_critical_one_eases_before_it_resolves():
    found = run(*[WORSE] * 3, *[BAD] * 5, *[FINE] * 5)
    assert [(a.severity, a.state) for a in found.values()] == [
        ("critical", "open"),
        ("warning", "open"),
        ("warning", "resolved"),
    ]


def test_an_open_alert_tells_its_newest_value_now_and_then():
    newer = Reading(0.45, "45 %", "warning", False, 0.25)
    found = run(*[BAD] * 3, *[newer] * REFRESH)
    assert [alert.message for alert in found.values()] == ["bad", "45 %"]


def test_it_may_open_again_under_another_id():
    found = run(*[BAD] * 3, *[FINE] * 5, *[BAD] * 3)
    assert [alert.id for alert in found.values() if alert.state == "open"] == [
        "truncation/env/1",
        "truncation/env/9",
    ]


def test_a_change_of_what_it_is_about_is_told_at_once():
    stuck = [
        Reading(9.0, f"{what} is stuck", "critical", False, at_once=True, subject=what)
        for what in ("generation", "generation", "reward")
    ]
    found = run(*stuck)
    assert [alert.message for alert in found.values()] == [
        "generation is stuck",
        "reward is stuck",
    ]
