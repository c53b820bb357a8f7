"""A run made of records: watched as it grows, replayed afterwards, with the same result."""

import pytest

from training_gym.records.health import acknowledge, assess, record_alerts, replay
from training_gym.records.health.facts import facts_of, health_of
from training_gym.records.health.feed import Feed, in_order
from training_gym.records.health.monitor import STREAMS, Monitor
from training_gym.records.health.replay import changes
from training_gym.records.recorder import Recorder
from training_gym.records.results import Exit, write_exit, write_result
from training_gym.spec.episodes import Counters, Outcome, Score
from training_gym.spec.health import Bounds, Health, Thresholds


class Writer:
    """Plays an engine: steps of eight episodes in two groups."""

    def __init__(self, run, make_episode, attempt=1):
        self.recorder = Recorder(run, writer="engine", attempt=attempt)
        self.make_episode = make_episode
        self.recorder.attempt_started()

    def step(self, number, *, equal=False, cut=0, **metrics):
        before = Counters(batch=number - 1, optimizer_step=number - 1)
        for group in range(2):
            for member in range(4):
                index = 4 * group + member
                status = "truncated" if index < cut else "finished"
                episode = self.make_episode(
                    member,
                    group=f"{number}-{group}",
                    id=f"{number}-{group}.{member}",
                    counters=before,
                    trajectories=(),
                    outcome=Outcome(status=status),
                    score=Score(value=1.0 if equal else float(member % 2)),
                )
                self.recorder.episode(episode)
        values = {"reward_mean": 0.5, "reward_max": 1.0, "entropy": 1.0, **metrics}
        self.recorder.metrics(values, Counters(batch=number, optimizer_step=number))
        self.recorder.flush()


@pytest.fixture
def writer(run, make_episode):
    made = []

    def begin(**settings):
        made.append(Writer(run, make_episode, **settings))
        return made[-1]

    yield begin
    for one in made:
        one.recorder.close()


def told(alerts):
    return [(alert.rule, alert.severity, alert.state, alert.first_step) for alert in alerts]


def test_alerts_come_from_records_and_cite_episodes(run, writer):
    engine = writer()
    for number in range(1, 13):
        engine.step(number, cut=3 if number > 6 else 0)
    found = replay(run)
    assert told(found) == [("truncation", "warning", "open", 7)]
    assert found[0].environment == "single_turn"
    assert found[0].evidence == ("9-0.0", "9-0.1", "9-0.2")


def test_replay_stops_where_it_is_told(run, writer):
    engine = writer()
    for number in range(1, 13):
        engine.step(number, cut=3 if number > 6 else 0)
    assert replay(run, up_to=8) == []
    assert told(replay(run, up_to=9)) == [("truncation", "warning", "open", 7)]


def test_other_thresholds_and_rules_turned_off(run, writer):
    engine = writer()
    for number in range(1, 8):
        engine.step(number, cut=3)
    loose = Health(thresholds=Thresholds(truncation=Bounds(warning=0.4, critical=0.6)))
    assert replay(run, health=loose) == []
    assert replay(run, health=Health(off=("truncation",))) == []


def test_watching_live_gives_what_a_replay_gives(run, writer):
    engine = writer()
    feed = Feed(run, STREAMS)
    monitor = Monitor(run.run_id, facts_of(run), health_of(run))
    live = []

    def look(before=None):
        for stream, record in feed.new(before):
            live.extend(monitor.take(stream, record))

    for number in range(1, 31):
        engine.step(number, cut=3 if 6 < number < 20 else 0, entropy=1.0 if number < 15 else 0.05)
        look()
    look()
    assert live == list(changes(run))
    assert {alert.rule for alert in live} == {"truncation", "entropy_collapse"}


def test_what_is_too_fresh_waits(run, writer):
    engine = writer()
    engine.step(1)
    feed = Feed(run, STREAMS)
    assert feed.new(before=0.0) == []
    assert len(feed.new()) == 10  # the start, eight episodes, the numbers
    assert feed.new() == []


def test_records_come_in_the_order_of_time_and_writers_keep_their_own():
    def item(writer, seq, time, attempt=1):
        return ("logs", {"writer": writer, "seq": seq, "time": time, "attempt": attempt})

    given = [item("b", 0, 5.0), item("a", 1, 2.0), item("a", 0, 4.0), item("a", 0, 1.0, attempt=2)]
    assert [(r["writer"], r["seq"], r["attempt"]) for _, r in in_order(given)] == [
        ("a", 0, 1),
        ("a", 1, 1),  # its clock was set back
        ("b", 0, 1),
        ("a", 0, 2),
    ]


def test_a_resume_forgets_the_steps_it_repeats(run, writer):
    first = writer()
    for number in range(1, 9):
        first.step(number, cut=3 if number > 6 else 0)
    first.recorder.close()
    again = writer(attempt=2)  # from nothing
    for number in range(1, 3):
        again.step(number, cut=3)
    assert replay(run) == []  # two points before, two after: never three in a row


def test_tuning_advice_is_silent_while_anything_is_wrong(run, writer):
    engine = writer()
    for number in range(1, 24):
        engine.step(number)
    assert [alert.rule for alert in replay(run)] == ["learning_rate_low"]
    for number in range(24, 28):
        engine.step(number, cut=3)
    found = {alert.rule: alert for alert in replay(run)}
    assert found["truncation"].state == "open"
    assert found["learning_rate_low"].state == "resolved"
    assert found["learning_rate_low"].details["resolved_by"] == "other alerts come first"


def test_a_run_that_was_watched_is_read_not_judged_anew(run, writer):
    engine = writer()
    for number in range(1, 9):
        engine.step(number, cut=3)
    replayed = replay(run)
    assert record_alerts(run) == replayed
    for number in range(9, 12):
        engine.step(number, cut=6)  # nobody watches any more
    assert told(assess(run).alerts) == told(replayed)


def test_the_verdict_names_the_worst_alert_in_one_sentence(run, writer):
    engine = writer()
    for number in range(1, 7):
        engine.step(number, equal=True)
    found = assess(run)
    assert found.verdict.level == "critical"
    assert found.verdict.sentence == (
        "Critical: 100% zero-variance groups (every reward is the same) since step 3"
    )
    assert (found.verdict.rule, found.verdict.since_step) == ("zero_variance", 3)


def test_an_acknowledgement_is_kept_in_the_runs_files_until_the_alert_worsens(run, writer):
    engine = writer()
    for number in range(1, 5):
        engine.step(number, cut=3)
    (alert,) = assess(run).open
    acknowledge(run, [alert.id], by="ada", note="expected")
    (seen,) = assess(run).alerts
    assert (seen.state, seen.acknowledged_by, seen.note) == ("acknowledged", "ada", "expected")
    acknowledge(run, [alert.id], by="ada", withdraw=True)
    assert assess(run).open[0].id == alert.id
    acknowledge(run, [alert.id], by="ada")
    for number in range(5, 9):
        engine.step(number, cut=6)
    (worse,) = assess(run).open
    assert (worse.id, worse.severity) == (alert.id, "critical")


def test_what_an_engine_raised_itself_is_an_alert_as_well(run, writer):
    engine = writer()
    engine.recorder.alert("no_update", "step 1 changed nothing", counters=Counters(batch=1))
    engine.recorder.flush()
    (found,) = assess(run).alerts
    assert (found.rule, found.first_step, found.source) == ("no_update", 1, "raised by engine")
    assert assess(run).verdict.level == "too_early"  # once is no illness
    engine.recorder.alert("disk", "the disk is dying", severity="critical")
    engine.recorder.flush()
    assert assess(run).verdict.sentence == "Critical: the disk is dying"


def test_dropped_records_and_open_work_reach_the_rules(run, writer):
    engine = writer()
    engine.recorder.event("records_dropped", streams={"metrics": 3})
    for number in range(1, 5):
        engine.step(number)
    work = {"component": "reward", "age_s": 900.0, "count": 2, "what": "4-0.1"}
    engine.recorder.heartbeat(open=[work])
    engine.recorder.flush()
    with Recorder(run, writer="runner", attempt=1) as runner:
        runner.heartbeat(phase="running")
    found = {alert.rule: alert for alert in replay(run)}
    assert found["telemetry_loss"].details == {"dropped": 3}
    assert found["stall"].message.startswith("reward has not moved for 15 min")
    assert found["stall"].evidence == ("4-0.1",)
    assert assess(run).alerts[0].rule in found


@pytest.mark.parametrize(("exit_code", "is_open"), [(0, False), (1, True)])
def test_a_watchdogs_alert_ends_with_a_run_that_ended_in_order(run, writer, exit_code, is_open):
    engine = writer()
    for number in range(1, 5):
        engine.step(number)
    engine.recorder.heartbeat(open=[{"component": "reward", "age_s": 900.0, "count": 2}])
    engine.recorder.flush()
    with Recorder(run, writer="runner", attempt=1) as runner:
        runner.heartbeat(phase="running")
    assert "stall" in {alert.rule for alert in record_alerts(run)}
    write_exit(run, Exit(attempt=1, exit_code=exit_code, started_at=1.0, ended_at=2.0))
    write_result(run)
    assert ("stall" in {alert.rule for alert in assess(run).open}) is is_open


def test_a_process_that_beat_once_before_it_began_is_missed_when_it_falls_silent(run, writer):
    from training_gym.records.health.observer import Observer

    observer = Observer(facts_of(run))
    common = {"attempt": 1, "batch": None}
    observer.heartbeat({"writer": "engine", "time": 1.0, "open": [], **common})
    observer.event({"kind": "attempt_started", "writer": "engine", "time": 2.0, **common})
    observer.now = 100.0
    assert observer.history().clock.silence_s == {"engine": 99.0}
    observer.event({"kind": "attempt_started", "time": 3.0, "attempt": 2, "batch": None})
    assert observer.history().clock.silence_s == {}


def test_a_damaged_definition_is_watched_with_the_usual_thresholds(tmp_path):
    from training_gym.records.run_directory import Manifest, RunDirectory

    spec = {"recipe": "?", "health": {"no_such": 1}, "reward": 5, "environment": {"ref": "m:Env"}}
    old = RunDirectory.create(tmp_path / "r2", Manifest(run_id="r2", created_at=1.0, run=spec))
    assert health_of(old) == Health()
    assert facts_of(old).environment == "Env"
