import os
import subprocess
import sys
import threading
import time

import pytest

from training_gym.records import lines
from training_gym.records.readers import read_episodes, read_page, read_stream
from training_gym.records.recorder import Recorder
from training_gym.records.segments import SegmentWriter, segments
from training_gym.spec.episodes import Counters
from training_gym.spec.errors import RecordsError


def test_every_record_carries_the_envelope(run):
    before = time.time()
    with Recorder(run, writer="engine", attempt=1) as recorder:
        recorder.counters = Counters(batch=2, optimizer_step=4, policy_version=4)
        recorder.metrics({"loss": float("nan"), "n": 3, "ok": True})
        recorder.span("rollout", 1.0, 2.5)
        recorder.evaluation(name="held_out", mean=0.5, counters=Counters(batch=9))
        recorder.heartbeat()
    metric = read_stream(run, "metrics")[0]
    assert metric["values"] == {"loss": "NaN", "n": 3, "ok": True}
    assert {k: metric[k] for k in ("schema", "writer", "attempt", "seq")} == {
        "schema": 1,
        "writer": "engine",
        "attempt": 1,
        "seq": 0,
    }
    assert (metric["batch"], metric["optimizer_step"], metric["policy_version"]) == (2, 4, 4)
    assert before - 1 < metric["time"] < time.time() + 1
    assert metric["monotonic"] > 0
    assert read_stream(run, "spans")[0]["end"] == 2.5
    evaluation = read_stream(run, "evaluations")[0]
    assert (evaluation["batch"], evaluation["optimizer_step"]) == (9, None)
    assert read_stream(run, "heartbeat")[0]["seq"] == 3


def test_episodes_come_back_whole(run, make_episode):
    written = [make_episode(member) for member in range(3)]
    with Recorder(run, writer="engine", attempt=1) as recorder:
        for episode in written:
            recorder.episode(episode)
    assert read_episodes(run) == written
    assert [e.trajectories for e in read_episodes(run, tokens=False, limit=2)] == [(), ()]
    assert read_stream(run, "episodes")[0]["policy_version"] == 3


def test_text_that_is_no_unicode_is_recorded(run, make_episode):
    odd = make_episode(id="x\udc80", duration_s=float("inf"))
    with Recorder(run, writer="engine", attempt=1) as recorder:
        recorder.episode(odd)
        recorder.log("half \ud800\u2028 line")
    assert read_episodes(run) == [odd]
    assert read_stream(run, "logs")[0]["text"] == "half \ud800\u2028 line"


def test_what_flush_acknowledged_survives_a_kill(run):
    script = (
        "import os, sys; from pathlib import Path\n"
        "from training_gym.records.recorder import Recorder\n"
        "from training_gym.records.run_directory import RunDirectory\n"
        "r = Recorder(RunDirectory(Path(sys.argv[1])), writer='w', attempt=1)\n"
        "for n in range(500): r.event('e', n=n)\n"
        "r.flush(sync=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(run.path)], check=False)
    assert done.returncode == -9
    assert [record["n"] for record in read_stream(run, "events")] == list(range(500))


def test_what_waits_at_exit_is_written(run):
    script = (
        "import sys; from pathlib import Path\n"
        "from training_gym.records.recorder import Recorder\n"
        "from training_gym.records.run_directory import RunDirectory\n"
        "Recorder(RunDirectory(Path(sys.argv[1])), writer='w', attempt=1).event('last')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(run.path)], check=True)
    assert [record["kind"] for record in read_stream(run, "events")] == ["last"]


def test_many_threads_one_order(run):
    with Recorder(run, writer="w", attempt=1) as recorder:
        threads = [
            threading.Thread(target=lambda: [recorder.event("e") for _ in range(100)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [record["seq"] for record in read_stream(run, "events")] == list(range(400))


@pytest.fixture
def stuck_disk(monkeypatch):
    """The recorder's thread hangs in its writes until the event is set; spilling works."""
    gate = threading.Event()
    entered = threading.Event()
    real = SegmentWriter.write

    def write(self, data):
        if threading.current_thread().name.startswith("recorder-"):
            entered.set()
            gate.wait(30)
        real(self, data)

    monkeypatch.setattr(SegmentWriter, "write", write)
    gate.entered = entered
    yield gate
    gate.set()


def test_under_pressure_only_metrics_logs_and_spans_are_dropped(run, make_episode, stuck_disk):
    recorder = Recorder(run, writer="w", attempt=1, max_records=4)
    recorder.event("first")
    assert stuck_disk.entered.wait(10)
    for number in range(10):
        recorder.metrics({"n": number})
        recorder.log("x")
        recorder.span("s", 0, 1)
        recorder.event("kept", n=number)
        recorder.alert("rule", "message")
        recorder.evaluation(n=number)
        recorder.episode(make_episode(number))
    dropped = recorder.dropped
    stuck_disk.set()
    recorder.close()
    assert dropped == {"metrics": 9, "logs": 9, "spans": 9}
    events = read_stream(run, "events")
    assert [e["n"] for e in events if e["kind"] == "kept"] == list(range(10))
    assert [e["streams"] for e in events if e["kind"] == "records_dropped"] == [dropped]
    assert [e.member for e in read_episodes(run)] == list(range(10))
    assert len(read_stream(run, "alerts")) == len(read_stream(run, "evaluations")) == 10
    spilled = [s.writer for s in segments(run.streams / "episodes")]
    assert spilled == ["w.spill"]


def test_a_large_record_is_taken_when_nothing_waits(run):
    with Recorder(run, writer="w", attempt=1, max_bytes=10) as recorder:
        recorder.log("x" * 1000)
        assert recorder.dropped == {}
    assert len(read_stream(run, "logs")) == 1


@pytest.fixture
def full_disk(monkeypatch):
    """Every write to a segment fails while the flag is set."""
    flag = threading.Event()
    real = os.write

    def write(descriptor, data):
        if flag.is_set():
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr("training_gym.records.segments.os.write", write)
    return flag


def test_a_full_disk_is_said_at_the_next_call_and_nothing_is_lost(run, make_episode, full_disk):
    recorder = Recorder(run, writer="w", attempt=1)
    recorder.episode(make_episode(0))
    recorder.flush()
    full_disk.set()
    recorder.episode(make_episode(1))
    recorder.metrics({"a": 1})
    with pytest.raises(RecordsError) as caught:
        recorder.flush()
    assert "No space left" in caught.value.message
    assert "free some space" in caught.value.fix
    with pytest.raises(RecordsError):
        recorder.episode(make_episode(2))
    full_disk.clear()
    recorder.flush()
    recorder.episode(make_episode(3))
    recorder.close()
    assert [episode.member for episode in read_episodes(run)] == [0, 1, 3]
    assert read_page(run, "episodes").damaged == 0
    assert recorder.dropped == {"metrics": 1}
    assert read_stream(run, "events")[0]["streams"] == {"metrics": 1}


def test_a_full_disk_at_the_end_is_said_by_close(run, full_disk):
    recorder = Recorder(run, writer="w", attempt=1)
    full_disk.set()
    recorder.event("e")
    with pytest.raises(RecordsError, match="No space"):
        recorder.close()


def test_where_spilling_fails_the_caller_waits_for_room(run, stuck_disk, monkeypatch):
    recorder = Recorder(run, writer="w", attempt=1, max_records=1)
    recorder.event("first")
    assert stuck_disk.entered.wait(10)

    def refuse(records):
        threading.Timer(0.05, stuck_disk.set).start()
        raise OSError(5, "io")

    monkeypatch.setattr(recorder._writer._spill, "write", refuse)
    recorder.event("second")
    recorder.close()
    assert [record["kind"] for record in read_stream(run, "events")] == ["first", "second"]


def test_a_mistake_of_ours_is_raised_at_the_next_call(run, make_episode, make_trajectory):
    recorder = Recorder(run, writer="w", attempt=1)
    bad = make_trajectory().model_copy(update={"token_ids": (-1,) * 6})
    recorder.episode(make_episode(trajectories=(bad,)))
    with pytest.raises(Exception, match="argument"):
        recorder.flush()
    with pytest.raises(Exception, match="argument"):
        recorder.close()


def test_misuse_is_refused(run):
    with pytest.raises(ValueError, match="file name"):
        Recorder(run, writer="a/b", attempt=1)
    recorder = Recorder(run, writer="w", attempt=1)
    with pytest.raises(ValueError, match="its own seq, time"):
        recorder.event("e", seq=1, time=2)
    with pytest.raises(TypeError):
        recorder.event("e", what=object())
    recorder.close()
    recorder.close()
    with pytest.raises(RuntimeError, match="closed"):
        recorder.event("e")


def test_attempt_started_marks_the_engine_ready(run):
    with Recorder(run, writer="w", attempt=2) as recorder:
        assert not (run.attempt(2) / "ready").exists()
        recorder.attempt_started()
        assert (run.attempt(2) / "ready").exists()
    assert read_stream(run, "events")[0]["resumed_from"] is None


def test_every_reserved_name_is_in_the_envelope(run):
    with Recorder(run, writer="w", attempt=1) as recorder:
        recorder.evaluation()
    assert set(read_stream(run, "evaluations")[0]) == lines.RESERVED


def test_a_later_recorder_of_the_same_attempt_goes_on_counting(run):
    for number in range(2):
        with Recorder(run, writer="w", attempt=1) as recorder:
            recorder.event("e", n=number)
            recorder.log("x")
    assert [(e["seq"], e["n"]) for e in read_stream(run, "events")] == [(0, 0), (2, 1)]
    assert [record["seq"] for record in read_stream(run, "logs")] == [1, 3]
