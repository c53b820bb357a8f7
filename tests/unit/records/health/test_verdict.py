import pytest

from training_gym.records.health.alerts import Alert
from training_gym.records.health.verdict import Standing, verdict_of


def alert(rule="truncation", severity="warning", state="open", **more):
    return Alert(
        **{
            "id": f"{rule}/{severity}",
            "rule": rule,
            "severity": severity,
            "state": state,
            "first_step": 40,
            "opened_at": 1.0,
            "updated_at": 1.0,
            "message": f"{rule} found",
            **more,
        }
    )


RUNNING = Standing("running", steps=60, reward_first=0.2, reward_now=0.6)


@pytest.mark.parametrize(
    ("alerts", "level", "sentence"),
    [
        ([], "healthy", "Healthy: reward 0.2 → 0.6 in 60 steps"),
        ([alert()], "degraded", "Degraded: truncation found since step 40"),
        ([alert(state="acknowledged")], "degraded", "Degraded: truncation found since step 40"),
        ([alert(state="resolved")], "healthy", "Healthy: reward 0.2 → 0.6 in 60 steps"),
        (
            [alert(), alert("mismatch", "critical", state="acknowledged")],
            "critical",
            "Critical: mismatch found since step 40, and 1 more",
        ),
        ([alert("stall", "critical")], "critical", "Stuck: stall found since step 40"),
        (
            [alert("learning_rate_low", "advice")],
            "healthy",
            "Healthy: reward 0.2 → 0.6 in 60 steps; learning_rate_low found",
        ),
        (
            [alert(environment="maze")],
            "degraded",
            "Degraded: truncation found in maze since step 40",
        ),
        ([alert(source="raised by engine")], "healthy", "Healthy: reward 0.2 → 0.6 in 60 steps"),
    ],
)
def test_the_worst_alert_that_is_not_resolved_decides(alerts, level, sentence):
    found = verdict_of(alerts, RUNNING)
    assert (found.level, found.sentence) == (level, sentence)


def test_how_it_ended_comes_first_and_where_it_stands_last():
    failed = Standing("failed", steps=9, reason="out of memory")
    assert verdict_of([alert()], failed).sentence == "Failed: out of memory"
    assert verdict_of([], Standing("lost")).sentence == "Lost: the job is gone"
    assert verdict_of([], Standing("running", steps=2)).sentence == "Too early to say: 2 steps"
    assert verdict_of([], Standing("running", steps=1)).level == "too_early"
    held = Standing("running", steps=5, paused=True)
    assert verdict_of([], held).sentence == "Paused after 5 steps"
    assert verdict_of([alert()], held).sentence.endswith("since step 40; paused")
    assert verdict_of([], Standing("completed", steps=9)).sentence == (
        "Healthy: 9 steps, nothing found"
    )
