import asyncio
import threading

import pytest

from training_gym.records.activity import Activity
from training_gym.records.readers import last_record, read_stream
from training_gym.records.recorder import Recorder


@pytest.fixture
def recorder(run):
    with Recorder(run, writer="engine", attempt=1) as made:
        yield made


@pytest.fixture
def activity(recorder):
    made = Activity(recorder)
    yield made
    made.close()


def at_work(activity):
    return {work["component"]: work["count"] for work in activity.open()}


def test_work_is_open_while_it_goes_on_and_a_span_afterwards(run, recorder, activity):
    with activity.at("training", "batch 3"):
        assert at_work(activity) == {"training": 1}
        assert activity.open()[0]["what"] == "batch 3"
    assert at_work(activity) == {}
    recorder.flush()
    (span,) = read_stream(run, "spans")
    assert (span["name"], span["component"], span["what"]) == ("training", "training", "batch 3")
    assert span["end"] >= span["start"]


def test_inner_work_is_what_counts_and_its_end_is_a_move_of_the_outer(activity):
    with activity.at("environment"):
        before = activity.open()[0]["age_s"]
        with activity.at("generation"):
            assert at_work(activity) == {"generation": 1}
        assert at_work(activity) == {"environment": 1}
        assert activity.open()[0]["age_s"] <= before + 1


def test_tasks_and_threads_have_work_of_their_own(activity):
    async def episode(reached, go):
        with activity.at("environment"):
            with activity.at("generation"):
                reached.release()
                await go.wait()
            reached.release()

    async def play():
        reached, go = asyncio.Semaphore(0), asyncio.Event()
        tasks = [asyncio.create_task(episode(reached, go)) for _ in range(3)]
        for _ in tasks:
            await reached.acquire()
        found = at_work(activity)
        go.set()
        await asyncio.gather(*tasks)
        return found

    assert asyncio.run(play()) == {"generation": 3}
    inside, leave = threading.Event(), threading.Event()

    def train():
        with activity.at("training"):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=train)
    thread.start()
    assert inside.wait(10)
    assert at_work(activity) == {"training": 1}
    leave.set()
    thread.join()
    assert at_work(activity) == {}


def test_methods_count_as_work_and_do_what_they_did(run, recorder, activity):
    class Part:
        def step(self, value):
            return at_work(activity), value

        async def generate(self, *, session):
            return at_work(activity), session

        def fail(self):
            raise KeyError("x")

    part = Part()
    activity.watch(part, step="training", generate="generation", fail="data")
    assert part.step(3) == ({"training": 1}, 3)
    assert asyncio.run(part.generate(session="1-0.2")) == ({"generation": 1}, "1-0.2")
    with pytest.raises(KeyError):
        part.fail()
    assert at_work(activity) == {}
    recorder.flush()
    spans = read_stream(run, "spans")
    assert [span["component"] for span in spans] == ["training", "generation", "data"]
    assert spans[1]["what"] == "1-0.2"


def test_heartbeats_tell_the_open_work(run, recorder):
    beating = Activity(recorder, beat_s=0.01)
    with beating.at("reward", "7-0.1"):
        while True:
            recorder.flush()
            beat = last_record(run, "heartbeat")
            if beat is not None and beat["open"]:
                break
    beating.close()
    assert beat["writer"] == "engine"
    (work,) = beat["open"]
    assert (work["component"], work["count"], work["what"]) == ("reward", 1, "7-0.1")


def test_a_full_disk_does_not_break_the_work(monkeypatch, activity, recorder):
    from training_gym.spec.errors import RecordsError

    def refuse(*_, **__):
        raise RecordsError("full", fix="free some")

    monkeypatch.setattr(recorder, "span", refuse)
    with activity.at("training"):
        pass
    assert at_work(activity) == {}
