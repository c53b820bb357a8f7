"""Sinks and imports, each with the real package; skipped where it is not installed."""

import sys
import time

import pytest

from training_gym.records.imports import import_run
from training_gym.records.imports.wandb import read_wandb
from training_gym.records.index import SeriesQuery
from training_gym.records.readers import read_stream
from training_gym.records.sinks import Feeder, SinkRun, open_sink
from training_gym.spec.errors import RecordsError


class Remembering:
    name = "remembering"

    def __init__(self):
        self.points = []

    def metrics(self, step, time, values):
        self.points += [(step, name, value) for name, value in values.items()]

    def close(self):
        pass


def feed(run, sink, tmp_path, **options):
    options.setdefault("everything", True)
    return Feeder(run, sink, tmp_path / "state.json", **options).feed()


def wait_for(holds, seconds=60):
    """wandb's own process may write its file out a moment after `finish()` has returned."""
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)


def recorded(run):
    return [
        (record["batch"], name, value)
        for record in read_stream(run, "metrics")
        for name, value in record["values"].items()
    ]


def test_each_point_is_handed_on_once(run, tmp_path):
    sink = Remembering()
    assert feed(run, sink, tmp_path) == 6
    assert feed(run, sink, tmp_path) == 0
    assert sink.points == recorded(run)


def test_curated_metrics_are_few(run, tmp_path):
    sink = Remembering()
    feed(run, sink, tmp_path, everything=False)
    names = {name for _, name, _ in sink.points}
    assert "reward_mean" in names
    assert "reward/correct" in names
    assert not any(name.startswith("layers/") for name in names)


def test_a_sink_that_fails_is_fed_again(run, tmp_path):
    class Failing(Remembering):
        def metrics(self, step, time, values):
            raise OSError("the tracker is down")

    with pytest.raises(OSError, match="down"):
        feed(run, Failing(), tmp_path)
    sink = Remembering()
    feed(run, sink, tmp_path)
    assert sink.points == recorded(run)


def test_unknown_and_missing_trackers_say_so(run, tmp_path, monkeypatch):
    told = SinkRun.of(run)
    with pytest.raises(RecordsError, match="no sink"):
        open_sink("papyrus", told, "p", tmp_path)
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(RecordsError, match="trackio"):
        open_sink("trackio", told, "p", tmp_path)


def test_tensorboard_there_and_back(run, index, tmp_path):
    pytest.importorskip("tensorboard")
    sink = open_sink("tensorboard", SinkRun.of(run), "p", tmp_path / "tb")
    feed(run, sink, tmp_path)
    sink.close()
    made = import_run("tensorboard", tmp_path / "tb" / "p" / "r1", tmp_path / "runs", run_id="tb")
    query = SeriesQuery(names=("reward_mean", "entropy"))
    ours, theirs = index.series(("r1",), query), index.series((made.run_id,), query)
    assert [curve.x for curve in ours] == [curve.x for curve in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.mean == pytest.approx(other.mean, rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline_there_and_back(run, index, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    sink = open_sink("wandb", SinkRun.of(run), "p", tmp_path / "wb")
    feed(run, sink, tmp_path)
    sink.close()
    wait_for(lambda: len(read_wandb(tmp_path / "wb").points) >= len(recorded(run)))
    made = import_run("wandb", tmp_path / "wb", tmp_path / "runs", run_id="wb")
    query = SeriesQuery(names=("reward_mean",))
    ours, theirs = index.series(("r1",), query)[0], index.series((made.run_id,), query)[0]
    assert (ours.x, ours.mean) == (theirs.x, theirs.mean)
    assert made.manifest.run["imported"]["model"] == "demo-model"


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_every_point_once(run, tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking")
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    for _ in range(2):
        sink = open_sink("mlflow", SinkRun.of(run), "p", tmp_path)
        feed(run, sink, tmp_path)
        sink.close()
    client = tracking.MlflowClient()
    found = client.search_runs([client.get_experiment_by_name("p").experiment_id])
    assert len(found) == 1
    history = client.get_metric_history(found[0].info.run_id, "reward_mean")
    told = [(m.step, "reward_mean", m.value) for m in sorted(history, key=lambda m: m.step)]
    assert told == [point for point in recorded(run) if point[1] == "reward_mean"]


@pytest.mark.filterwarnings("ignore")
def test_trackio_has_every_point(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage
    sink = open_sink("trackio", SinkRun.of(run), "p", tmp_path)
    feed(run, sink, tmp_path)
    sink.close()
    history = storage.get_logs("p", "r1")
    told = [(row["step"], "reward_mean", row["reward_mean"]) for row in history]
    assert told == [point for point in recorded(run) if point[1] == "reward_mean"]


def test_nothing_to_import_says_so(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordsError, match="no numbers"):
        import_run("tensorboard", tmp_path / "empty", tmp_path / "runs")
    with pytest.raises(RecordsError, match="cannot be imported"):
        import_run("papyrus", tmp_path, tmp_path / "runs")
