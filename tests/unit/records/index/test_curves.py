import json
import math
import random

import pytest

from training_gym.records.checkpoints import Position
from training_gym.records.index import SeriesQuery, rollups
from training_gym.records.recorder import Recorder
from training_gym.spec.episodes import Counters
from training_gym.spec.errors import SpecError


def series(index, name, **query):
    found = index.series(("r1",), SeriesQuery(names=(name,), **query))
    return found[0] if found else None


def test_points_come_back_as_they_were_written(index, new_run, record):
    record(new_run(), [(1, {"a": 0.5, "b": 1}), (2, {"a": -1.25})])
    found = series(index, "a")
    assert (found.x, found.mean, found.low, found.batch) == ((1, 2), (0.5, -1.25), None, (1, 2))
    assert series(index, "b").mean == (1,)
    assert series(index, "c") is None


def test_a_run_is_followed_while_it_is_written(index, new_run, record):
    run = new_run()
    for batch in range(1, 4):
        record(run, [(batch, {"a": batch})])
        assert series(index, "a").x == tuple(range(1, batch + 1))


@pytest.mark.parametrize("count", [1, 511, 512, 4095, 4096, 4097, 9000])
def test_chunks_hold_every_point(index, new_run, record, count):
    random_ = random.Random(count)
    values = [random_.gauss(0, 1) for _ in range(count)]
    half = count // 2
    run = new_run()
    record(run, [(i, {"a": values[i]}) for i in range(half)])
    index.refresh("r1")
    record(
        run,
        [
            (i, {"a": values[i], "now and then": i} if i % 7 == 0 else {"a": values[i]})
            for i in range(half, count)
        ],
        writer="engine",
        attempt=1,
    )
    assert series(index, "a", max_points=100_000).mean == tuple(values)


def test_a_metric_of_few_records_keeps_its_batches(index, new_run, record):
    rows = [(i, {"a": i, "eval": i * 10} if i % 100 == 0 else {"a": i}) for i in range(1, 1001)]
    record(new_run(), rows)
    found = series(index, "eval")
    assert found.batch == tuple(range(100, 1001, 100))
    assert found.mean == tuple(range(1000, 10_001, 1000))


def test_merging_keeps_extremes_and_means(index, new_run, record):
    values = [0.0] * 5000
    values[1234], values[4321] = 99.0, -99.0
    record(new_run(), [(i, {"a": value}) for i, value in enumerate(values)])
    found = series(index, "a", max_points=50)
    assert len(found.x) <= 50
    assert found.count == 5000
    assert max(found.high) == 99.0
    assert min(found.low) == -99.0
    assert found.x[-1] == 4999
    assert math.fsum(found.mean) == pytest.approx(0.0)


def test_long_curves_are_read_from_rollups_with_the_same_extremes(
    index, new_run, record, monkeypatch
):
    monkeypatch.setattr("training_gym.records.index.curves.EXACT_POINTS", 4096)
    values = [math.sin(i / 50) for i in range(10_000)]
    values[777] = 5.0
    record(new_run(), [(i, {"a": value}) for i, value in enumerate(values)])
    found = series(index, "a", max_points=100)
    assert len(found.x) <= 100
    assert found.count == 10_000
    assert max(found.high) == 5.0
    assert min(found.low) == min(values)
    part = series(index, "a", max_points=100_000, start=770, stop=780)
    assert part.mean == tuple(values[770:781])


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_kept_and_spoils_no_mean(index, new_run, record, special):
    record(new_run(), [(i, {"a": special if i == 3 else 1.0}) for i in range(8)])
    raw = series(index, "a")
    assert [v == 1.0 for v in raw.mean] == [i != 3 for i in range(8)]
    merged = series(index, "a", max_points=2)
    assert merged.mean == (1.0, 1.0)
    extremes = merged.high if special > 0 else merged.low
    assert (special in extremes) == (special == special)


def test_rollups_are_what_they_say():
    data = [float(i % 37) for i in range(512)]
    rolled = rollups.rollup(data, 16)
    assert rolled[:32].tolist() == [min(data[i : i + 16]) for i in range(0, 512, 16)]
    assert rolled[32:64].tolist() == [max(data[i : i + 16]) for i in range(0, 512, 16)]
    assert rolled[64:].tolist() == pytest.approx(
        [sum(data[i : i + 16]) / 16 for i in range(0, 512, 16)]
    )


def test_tokens_and_time_go_on_over_attempts(index, new_run):
    run = new_run()
    for attempt, batches in ((1, (1, 2, 3)), (2, (3, 4))):
        with Recorder(run, writer="engine", attempt=attempt) as recorder:
            point = {"optimizer_step": 2, "batch": 2, "position": None} if attempt == 2 else None
            recorder.event("attempt_started", resumed_from=point)
            for batch in batches:
                recorder.metrics({"a": batch, "sampled_tokens": 10}, Counters(batch=batch))
    found = series(index, "a", x="tokens")
    assert found.mean == (1, 2, 3, 4)
    assert found.x == (10, 20, 30, 40)
    seconds = series(index, "a", x="time").x
    assert list(seconds) == sorted(seconds)
    assert seconds[0] >= 0


def test_a_resume_hides_exactly_what_the_readers_hide(index, new_run):
    run = new_run()
    with Recorder(run, writer="engine", attempt=1) as first:
        first.attempt_started()
        for batch in range(1, 6):
            first.metrics({"a": batch}, Counters(batch=batch, optimizer_step=batch))
    index.refresh("r1")
    before = index.changes("r1").cursor
    position = Position(writer="engine", attempt=1, seq=3)
    with Recorder(run, writer="engine", attempt=2) as second:
        second.event(
            "attempt_started",
            resumed_from={"optimizer_step": 3, "batch": 3, "position": position},
        )
        second.metrics({"a": 40}, Counters(batch=4, optimizer_step=4))
    from training_gym.records.readers import read_stream

    told = tuple(record["values"]["a"] for record in read_stream(run, "metrics"))
    assert series(index, "a").mean == told == (1, 2, 3, 40)
    assert index.changes("r1", before).reset
    assert index.overview("r1").hidden == 2


def test_a_record_written_twice_counts_once(index, new_run, record):
    run = new_run()
    record(run, [(1, {"a": 1.0}), (2, {"a": 2.0})])
    segment = next((run.streams / "metrics").iterdir())
    again = run.streams / "metrics" / "engine-1-7.jsonl"
    again.write_bytes(segment.read_bytes())
    assert series(index, "a").mean == (1.0, 2.0)


def test_records_that_are_no_metrics_are_passed_over(index, new_run, record):
    run = new_run()
    record(run, [(1, {"a": 1.0})])
    segment = next((run.streams / "metrics").iterdir())
    line = json.loads(segment.read_text())
    odd = [
        {**line, "seq": 9, "values": "none"},
        {**line, "seq": 10, "values": {"a": {"deep": 1}}},
        {**line, "seq": 11, "values": {"a": "Infinity"}},
    ]
    with segment.open("a") as file:
        for record_ in odd:
            file.write(json.dumps(record_) + "\n")
        file.write("not json\n[1]\n")
    found = series(index, "a")
    assert found.mean[0] == 1.0
    assert math.isnan(found.mean[1])
    assert found.mean[2] == math.inf
    assert index.overview("r1").damaged == 2


@pytest.mark.parametrize("ends", [{"start": 5, "stop": 2}, {"start": math.nan}])
def test_an_interval_that_holds_nothing_is_refused(ends):
    with pytest.raises(SpecError, match=r"nothing lies between|finite"):
        SeriesQuery(names=("a",), **ends)
    assert SeriesQuery(names=("a",), start=2, stop=2).start == 2
