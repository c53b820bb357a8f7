import pytest

from training_gym.cli.failures import HEALTH_CRITICAL, HEALTH_DEGRADED


@pytest.fixture
def cut(new_run):
    """A run a third of whose episodes are cut off; this process is its job."""
    run = new_run("r1", num_steps=30)
    for step in range(1, 7):
        run.step(step, truncated_share=0.3)
    return run


def test_alerts_begin_with_the_verdict_and_say_what_to_do(command, cut):
    found = command("alerts", "r1")
    assert found.code == 0
    first, *rest = found.out.splitlines()
    assert first == "Degraded: 30% of the episodes were cut off since step 1"
    text = "\n".join(rest)
    assert "open warning: 30% of the episodes were cut off" in text
    assert "id        truncation/single_turn/1" in text
    assert "perhaps   max_response_tokens" in text
    assert "then      look at where they were cut: training-gym episodes r1" in text


def test_alerts_as_json(command, cut):
    (found,) = command("alerts", "r1", "--json").objects
    assert found["verdict"]["level"] == "degraded"
    (alert,) = found["alerts"]
    assert alert["id"] == "truncation/single_turn/1"
    assert alert["explanations"]
    assert alert["next"]
    (later,) = command("alerts", "r1", "--json", "--since", found["cursor"]).objects
    assert later["alerts"] == []
    (earlier,) = command("alerts", "r1", "--json", "--since", "1h").objects
    assert len(earlier["alerts"]) == 1


@pytest.mark.parametrize(
    ("fail_on", "share", "code"),
    [
        ("warning", 0.3, HEALTH_DEGRADED),
        ("critical", 0.3, 0),
        ("warning", 0.6, HEALTH_CRITICAL),
        ("critical", 0.6, HEALTH_CRITICAL),
        ("warning", 0.0, 0),
    ],
)
def test_the_exit_code_is_the_verdict_where_asked(command, new_run, fail_on, share, code):
    run = new_run("r2")
    for step in range(1, 5):
        run.step(step, truncated_share=share)
    assert command("alerts", "r2", "--fail-on", fail_on).code == code


def test_a_level_that_does_not_exist_is_a_usage_error(command, cut):
    assert command("alerts", "r1", "--fail-on", "note").code == 2


def test_a_healthy_run_says_so_and_how_far_the_reward_came(command, new_run):
    run = new_run("r3")
    for step in range(1, 11):
        run.step(step)
    found = command("alerts", "r3")
    assert found.out.splitlines() == ["Healthy: reward 0.3 → 0.8 in 10 steps"]


def test_output_is_bounded(command, new_run):
    run = new_run("r4")
    run.recorder.alert("one", "first")
    run.recorder.alert("two", "second")
    run.flush()
    (found,) = command("alerts", "r4", "--json", "--limit", "1").objects
    # Records without an id are told apart by who wrote them.
    assert found["omitted"] == 1


def test_acknowledging_by_rule_by_id_and_all(command, cut):
    (found,) = command("runs", "ack", "r1", "truncation", "--note", "fine", "--json").objects
    assert found["alerts"] == ["truncation/single_turn/1"]
    shown = command("alerts", "r1").out
    assert "acknowledged warning" in shown
    assert ": fine" in shown
    assert command("runs", "ack", "r1", "--withdraw").out == "truncation/single_turn/1\n"
    assert "open warning" in command("alerts", "r1").out
    assert command("runs", "ack", "r1").out == "truncation/single_turn/1\n"
    assert command("runs", "ack", "r1").err == "there is nothing to acknowledge\n"


def test_an_unknown_alert_is_a_usage_error_with_a_hint(command, cut):
    found = command("runs", "ack", "r1", "truncaton")
    assert found.code == 2
    assert "no alert is called 'truncaton'" in found.err
    assert "did you mean 'truncation'?" in found.err


def test_explain_tells_why_and_cites_episodes(command, new_run):
    run = new_run("r5")
    for step in range(10):
        for member in range(4):
            run.episode(
                "x" * (5 + step), task="a", step=step, member=member, value=step / 10 + member / 100
            )
    found = command("explain", "r5")
    assert found.out.startswith("the mean reward rose: 0.065 → 0.865")
    assert "task a rose" in found.out
    (told,) = command("explain", "r5", "--json").objects
    assert told["moved"] is True
    assert told["parts"][0]["episodes"]
    (chosen,) = command("explain", "r5", "--json", "--before", "5", "--after", "6").objects
    assert chosen["steps_before"] != told["steps_before"]


def test_explaining_a_run_without_episodes_is_two_lines(command, new_run):
    new_run("r6")
    found = command("explain", "r6")
    assert found.code == 11
    assert "nothing to compare" in found.err


def test_pausing_asks_the_job_and_resuming_lets_it_go_on(command, new_run):
    from training_gym.jobs import control

    run = new_run("r7")
    assert command("runs", "pause", "r7").out == "r7\n"
    assert [asked.kind for asked in control.requests(run.files)] == ["pause"]
    run.recorder.event("paused")
    run.flush()
    found = command("alerts", "r7")
    assert found.out == "Paused after 0 steps\n"
    (told,) = command("runs", "resume", "r7", "--detach", "--json").objects
    assert told["status"] == "running"
    assert [asked.kind for asked in control.requests(run.files)] == ["pause", "unpause"]


def test_what_does_not_run_cannot_be_paused(command, new_run):
    new_run("r8").end(summary={"status": "completed"})
    found = command("runs", "pause", "r8")
    assert found.code == 10
    assert "cannot be paused: it is completed" in found.err
