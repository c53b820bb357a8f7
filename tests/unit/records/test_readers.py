import json

import pytest

from training_gym.records.checkpoints import Checkpoint, Position
from training_gym.records.readers import last_record, read_episodes, read_page, read_stream
from training_gym.records.recorder import Recorder
from training_gym.records.segments import segments
from training_gym.spec.episodes import Counters
from training_gym.spec.errors import RecordsError


def write(run, stream, writer, attempt, records, number=0):
    """A segment made by hand: seq, time and fields of each record."""
    folder = run.streams / stream
    folder.mkdir(parents=True, exist_ok=True)
    envelope = {
        "schema": 1,
        "writer": writer,
        "attempt": attempt,
        "batch": None,
        "optimizer_step": None,
        "policy_version": None,
    }
    lines = [
        json.dumps({**envelope, "seq": seq, "time": at, **fields}) + "\n"
        for seq, at, fields in records
    ]
    path = folder / f"{writer}-{attempt}-{number}.jsonl"
    with path.open("a") as file:
        file.write("".join(lines))
    return path


def marks(records):
    return [record["n"] for record in records]


def test_order_is_attempt_then_time_and_each_writers_own_order(run):
    write(run, "logs", "b", 2, [(0, 5.0, {"n": 6})])
    # The clock of this writer jumps back: its second record still follows its first.
    write(run, "logs", "a", 1, [(0, 30.0, {"n": 2}), (1, 10.0, {"n": 3}), (2, 40.0, {"n": 5})])
    write(run, "logs", "b", 1, [(0, 20.0, {"n": 1}), (1, 35.0, {"n": 4})])
    assert marks(read_stream(run, "logs")) == [1, 2, 3, 4, 5, 6]
    assert marks(read_stream(run, "logs", limit=2)) == [5, 6]
    assert read_stream(run, "logs", limit=0) == []


def test_a_spilled_record_is_put_back_and_a_repeated_one_counts_once(run):
    write(run, "events", "w", 1, [(0, 1.0, {"n": 0}), (2, 3.0, {"n": 2})])
    path = write(run, "events", "w.spill", 1, [])
    path.write_bytes(
        b'{"schema":1,"writer":"w","attempt":1,"seq":1,"time":2.0,"n":1}\n'
        b'{"schema":1,"writer":"w","attempt":1,"seq":2,"time":3.0,"n":2}\n'
    )
    assert marks(read_stream(run, "events")) == [0, 1, 2]


def test_a_torn_line_loses_only_itself(run):
    path = write(run, "logs", "w", 1, [(0, 1.0, {"n": 0})])
    with path.open("ab") as file:
        file.write(b'{"schema":1,"writer":"w","att')
    page = read_page(run, "logs")
    assert (marks(page.records), page.damaged) == ([0], 0)
    with path.open("ab") as file:
        file.write(b"\n[1]\n")
    write(run, "logs", "w", 1, [(1, 2.0, {"n": 1})])
    page = read_page(run, "logs")
    assert (marks(page.records), page.damaged) == ([0, 1], 2)
    again = read_page(run, "logs", since=page.cursor)
    assert (again.records, again.damaged) == ((), 0)


def test_a_torn_line_shows_once_it_is_whole(run):
    path = write(run, "logs", "w", 1, [(0, 1.0, {"n": 0}), (1, 2.0, {"n": 1})])
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    first = read_page(run, "logs")
    path.write_bytes(whole)
    assert marks(first.records) == [0]
    assert marks(read_page(run, "logs", since=first.cursor).records) == [1]


def test_pages_of_any_size_show_everything_once(run):
    write(run, "logs", "a", 1, [(n, float(n), {"n": n}) for n in range(0, 20, 2)])
    write(run, "logs", "b", 1, [(n, float(n), {"n": n}) for n in range(1, 20, 2)])
    for size in (1, 3, 20):
        seen, cursor = [], ""
        while True:
            page = read_page(run, "logs", since=cursor, limit=size)
            if not page.records:
                break
            seen += marks(page.records)
            cursor = page.cursor
        assert seen == list(range(20))


def test_a_foreign_cursor_and_a_newer_schema_are_refused(run):
    write(run, "logs", "a", 1, [(0, 0.0, {"n": 0, "schema": 99})])
    with pytest.raises(RecordsError, match="not a cursor"):
        read_page(run, "logs", since="nonsense")
    with pytest.raises(RecordsError, match="schema 99"):
        read_stream(run, "logs")


def test_the_last_record_of_the_last_attempt(run):
    assert last_record(run, "heartbeat") is None
    write(run, "heartbeat", "runner", 1, [(0, 100.0, {"n": 0})])
    write(run, "heartbeat", "runner", 2, [(0, 1.0, {"n": 1}), (1, 2.0, {"n": 2})])
    write(run, "heartbeat", "engine", 2, [(0, 3.0, {"n": 3})])
    write(run, "heartbeat", "engine", 3, [])
    assert last_record(run, "heartbeat")["n"] == 3
    assert last_record(run, "heartbeat", writer="runner")["n"] == 2


def step(number):
    return Counters(batch=number, optimizer_step=number)


def checkpoint(number, position=None):
    return Checkpoint(
        step=number, counters=step(number), created_at=0, sha256="", files=(), position=position
    )


def record_steps(recorder, make_episode, steps):
    for number in steps:
        recorder.metrics({"n": number}, step(number))
        recorder.episode(make_episode(number, batch=number, step=number - 1))
        recorder.log(str(number), n=number)


def test_a_resume_hides_what_lies_past_its_counters(run, make_episode):
    with Recorder(run, writer="engine", attempt=1) as recorder:
        recorder.attempt_started()
        record_steps(recorder, make_episode, (1, 2, 3))
    with Recorder(run, writer="engine", attempt=2) as recorder:
        recorder.attempt_started(checkpoint(2))
        record_steps(recorder, make_episode, (3, 4))
    shown = read_stream(run, "metrics")
    assert [(r["attempt"], r["values"]["n"]) for r in shown] == [(1, 1), (1, 2), (2, 3), (2, 4)]
    assert [episode.member for episode in read_episodes(run)] == [1, 2, 3, 4]
    assert marks(read_stream(run, "logs")) == [1, 2, 3, 3, 4]
    everything = read_stream(run, "metrics", show_hidden=True)
    assert [r["values"]["n"] for r in everything] == [1, 2, 3, 3, 4]
    assert len(read_episodes(run, show_hidden=True)) == 5


def test_with_a_position_the_cut_is_exact(run):
    with Recorder(run, writer="engine", attempt=1) as recorder:
        recorder.evaluation(n=1, counters=step(2))
        position = recorder.position()
        recorder.evaluation(n=2, counters=step(2))  # will be measured again
    assert position == Position(writer="engine", attempt=1, seq=0)
    with Recorder(run, writer="other", attempt=1) as other:
        other.evaluation(n=3, counters=step(2))
        other.evaluation(n=4, counters=step(3))
    with Recorder(run, writer="engine", attempt=2) as recorder:
        recorder.attempt_started(checkpoint(2, position))
        recorder.evaluation(n=5, counters=step(2))
    assert sorted(marks(read_stream(run, "evaluations"))) == [1, 3, 5]


def test_a_fresh_start_hides_all_before_it_and_cuts_add_up(run):
    for attempt, resumed in ((1, None), (2, None), (3, checkpoint(1)), (4, checkpoint(1))):
        with Recorder(run, writer="engine", attempt=attempt) as recorder:
            recorder.attempt_started(resumed)
            for number in (1, 2):
                recorder.metrics({"n": 10 * attempt + number}, step(number))
    assert [r["values"]["n"] for r in read_stream(run, "metrics")] == [21, 31, 41, 42]


def test_an_engine_that_only_knows_its_step_is_understood(run):
    for attempt in (1, 2):
        with Recorder(run, writer="engine", attempt=attempt) as recorder:
            recorder.event("attempt_started", resumed_from=1 if attempt == 2 else None)
            for number in (1, 2):
                recorder.metrics({"n": 10 * attempt + number}, step(number))
    assert [r["values"]["n"] for r in read_stream(run, "metrics")] == [11, 21, 22]


def test_episodes_of_one_stream(run, make_episode):
    with Recorder(run, writer="engine", attempt=1) as recorder:
        for number, stream in enumerate(("train", "held_out", "train")):
            recorder.episode(make_episode(number, stream=stream))
    assert [e.member for e in read_episodes(run, stream="train")] == [0, 2]
    assert [e.member for e in read_episodes(run, stream="train", limit=1)] == [2]
    assert [e.member for e in read_episodes(run, stream="held_out")] == [1]


def test_damaged_or_missing_tokens_are_said_and_can_be_left_out(run, make_episode):
    with Recorder(run, writer="engine", attempt=1) as recorder:
        recorder.episode(make_episode())
    tokens = segments(run.streams / "episodes")[0].path.with_suffix(".tok")
    tokens.write_bytes(b"\0" * tokens.stat().st_size)
    with pytest.raises(RecordsError, match="checksum"):
        read_episodes(run)
    tokens.unlink()
    with pytest.raises(RecordsError, match="No such file"):
        read_episodes(run)
    assert len(read_episodes(run, tokens=False)) == 1
