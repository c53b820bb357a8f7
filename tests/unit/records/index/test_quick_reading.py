"""Lines of episodes are read in short where that is possible: nothing may come of it but speed."""

import json
import sqlite3

import pytest

from training_gym.records.demo import DemoShape, write_demo_run
from training_gym.records.index import Index, tailing
from training_gym.records.index.decode import compact, record_of
from training_gym.records.index.episode_heads import head_of
from training_gym.records.index.metric_lines import metric_line
from training_gym.records.index.quick_reading import quick_reader
from training_gym.records.index.record_intake import log_head
from training_gym.records.index.rollups import rollup, rollups
from training_gym.records.index.sampled import SidecarReader
from training_gym.records.index.span_blocks import span_head

SMALL = {"steps": 6, "groups": 2, "group_size": 3, "evaluation_tasks": 3, "answer_words": 10}


def plain(row):
    return [
        as_said(cell) if isinstance(cell, str) and cell.startswith("{") else cell for cell in row
    ]


def as_said(text):
    try:
        return json.loads(text)
    except ValueError:  # a model's answer that begins like JSON
        return text


def contents(path):
    """Every row of a run's database but what is drawn by lot; JSON as what it says."""
    with sqlite3.connect(path) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
        found = {
            name: [plain(row) for row in connection.execute(f"SELECT * FROM {name}")]
            for name in tables
            if not name.startswith(("sqlite_", "episodes_", "logs_", "groups_"))
            and name not in ("meta", "remarks_by_episode", "recent_by_lane")
        }
    connection.close()
    return found


@pytest.mark.parametrize("kind", ["healthy", "hostile", "resumed", "dead_sandbox"])
def test_an_index_read_in_short_is_the_same(tmp_path, monkeypatch, kind):
    pytest.importorskip("msgspec")
    run = write_demo_run(
        tmp_path / "runs", DemoShape(kind=kind, **SMALL), run_id="r1", ended_at=1.8e9
    )
    for name in ("quick", "whole"):
        index = Index(run.path.parent, tmp_path / name)
        index.refresh("r1")
        index.close()
        monkeypatch.setattr(tailing, "quick_reader", lambda stream: lambda data: None)
    quick, whole = (contents(tmp_path / name / "runs" / "r1.sqlite") for name in ("quick", "whole"))
    assert quick == whole
    assert len(quick["episodes"]) > 20


def line(**changes):
    episode = {
        "id": "e",
        "group": "g",
        "task": {"id": "t", "prompt": [{"role": "user", "content": "x"}]},
        "outcome": {"status": "truncated", "reason": "too long"},
        "score": {"value": 0.5, "components": {"a": 1, "b": 0.25}},
        "messages": [{"role": "assistant", "content": "yes"}],
    }
    record = {
        **{"schema": 1, "writer": "w", "attempt": 1, "seq": 0, "time": 1, "monotonic": 1.0},
        **{"batch": 3, "optimizer_step": None, "policy_version": 2},
        "episode": {**episode, **changes.pop("episode", {})},
        "trajectories": [
            {
                "prompt_length": 3,
                "sampled": {"tokens": 2, "logprobs": -0.5, "first": 1, "last": 4},
            }
        ],
    }
    return json.dumps({**record, **changes}).encode()


@pytest.mark.parametrize(
    "text",
    [
        line(),
        line(discarded="stale", staleness=7),
        line(episode={"score": {"value": "NaN"}}),
        line(episode={"score": None, "messages": []}),
        line(episode={"task": {"id": "t", "metadata": {"env": "maths"}, "prompt": "x"}}),
        line(episode={"messages": [{"role": "assistant", "content": [{"text": "ab" * 200}]}]}),
        line(
            episode={
                "task": {"id": "t", "prompt": [{"role": "assistant", "content": "shown"}]},
                "messages": [{"role": "assistant", "content": c} for c in ("shown", "said")],
            }
        ),
        line(trajectories=[]),
    ],
)
def test_a_head_read_in_short_is_the_whole_records(text, tmp_path):
    pytest.importorskip("msgspec")
    record = record_of(text)
    with SidecarReader() as sidecars:
        whole = head_of(record, sidecars.sampled(tmp_path / "w-1-0.jsonl", record))
    assert quick_reader("episodes")(text + b"\n") == [whole]


@pytest.mark.parametrize(
    "text",
    [
        line(schema=2),
        line(episode={"outcome": {"status": "unheard of"}}),
        line(episode={"id": 5}),
        line(trajectories=[{"prompt_length": 3}]),
        line(episode={"messages": [{"role": "assistant", "content": "\ud800"}]}),
        line()[:-1],
        b"[]",
    ],
)
def test_what_is_not_quite_a_recorders_line_is_left_to_the_standard_reader(text):
    assert quick_reader("episodes")(text + b"\n") is None
    good = line()
    found = quick_reader("episodes")(b"\n".join((good, text, good, b"")))
    assert [one is None for one in found] == [False, True, False]


def metrics(values, **changes):
    envelope = {"schema": 1, "writer": "w", "attempt": 1, "seq": 0, "time": 1.5, "monotonic": 1}
    counters = {"batch": 3, "optimizer_step": None, "policy_version": 2}
    return json.dumps({**envelope, **counters, "values": values, **changes}).encode()


def test_metrics_read_in_short_are_the_whole_records():
    pytest.importorskip("msgspec")
    read = quick_reader("metrics")
    lines = [
        metrics({"a": 0.1, "b/é": 2}),
        metrics({"a": 1e-300, "b/é": -3}, seq=1, policy_version=None),
        metrics({"b/é": 4, "a": 5.5}, seq=2),
        metrics({"a": 5.5}, seq=3),
        metrics({"a": "NaN", "b/é": "-Infinity"}, seq=4),
        metrics({"a": 2**70, "b/é": True}, seq=5),
        metrics({"a": 1, "b/é": None}, seq=6),
        metrics({"a": 1, "b/é": 1.0}, seq=7, batch=2**60),
        metrics({}, seq=8),
        *(metrics({f"m{number}": 1.0, "a": 2.0}, seq=9 + number) for number in range(6)),
        metrics({"a": 0.1, "b/é": 2}, seq=20),
    ]
    for text, quick in zip(lines * 2, read(b"\n".join([*lines * 2, b""])), strict=True):
        whole = metric_line(record_of(text))
        assert quick[:3] == whole[:3]
        assert repr(list(map(float, quick.envelope))) == repr(list(map(float, whole.envelope)))
        said = dict(zip(quick.names, map(repr, quick.values), strict=True))
        assert said == dict(zip(whole.names, map(repr, whole.values), strict=True))


@pytest.mark.parametrize("text", [metrics({"a": 1.0})[:-1], metrics([1]), b"[]", b"\xff"])
def test_what_holds_no_metrics_is_left_to_the_standard_reader(text):
    read = quick_reader("metrics")
    assert read(b"\n".join((metrics({"a": 1.0}), text, b"")))[1] is None


def envelope(**changes):
    names = ("batch", "optimizer_step", "policy_version")
    head = {"schema": 1, "writer": "w", "attempt": 1, "seq": 4, "time": 20.5, "monotonic": 3.25}
    return {**head, **dict.fromkeys(names), **changes}


@pytest.mark.parametrize(
    "said",
    [
        {"name": "rollout", "start": 1.0, "end": 2.5, "tokens": 1e-7, "note": 'é "}\\'},
        {"name": "rollout", "component": "reward", "start": 1, "end": None, "span": 7},
        {"name": "x", "lane": "sync", "start": 1.0, "end": 2.0, "span": "s", "batch": 3},
        {"start": 1.0, "end": 2.0, **envelope()},
    ],
)
def test_spans_read_in_short_are_the_whole_records(said):
    pytest.importorskip("msgspec")
    text = json.dumps({**envelope(), **said}).encode()
    assert quick_reader("spans")(text + b"\n") == [span_head(record_of(text))]


@pytest.mark.parametrize(
    "said",
    [
        {"text": "WARNING: slow"},
        {"text": "Traceback (most recent call last)", "source": "engine", "batch": 3},
        {"text": "well", "level": "error"},
        {"text": "x: SomeWarning: y"},
        {"text": "a lost warning: no", "level": "unheard of"},
        {},
    ],
)
def test_log_lines_read_in_short_are_the_whole_records(said):
    pytest.importorskip("msgspec")
    text = json.dumps({**envelope(), **said}).encode()
    assert quick_reader("logs")(text + b"\n") == [log_head(record_of(text))]


@pytest.mark.parametrize("stream", ["spans", "tokens", "logs", "heartbeat"])
@pytest.mark.parametrize("changed", [{"schema": 2}, {"writer": 5}, {"seq": "NaN"}])
def test_what_is_not_quite_as_recorded_is_taken_apart(stream, changed):
    text = json.dumps({**envelope(**changed), "start": 1.0, "end": 2.0}).encode()
    assert quick_reader(stream)(text + b"\n") is None


def test_what_a_record_says_is_kept_as_it_was():
    for said in ({"a": [1, 2.5, None, "x"]}, {"a": float("inf")}, {"a": 2**80}, {"a": "é"}):
        assert json.loads(compact(said)) == said


def test_rollups_leave_out_what_is_no_number():
    data = [float(number % 7) for number in range(32)]
    assert list(rollup(data, 16)) == [0, 0, 6, 6, sum(data[:16]) / 16, sum(data[16:]) / 16]
    assert rollups(data * 16) == (rollup(data * 16, 256), rollup(data * 16, 16))
    data[3] = float("nan")
    assert list(rollup(data, 16))[:4] == [0, 0, 6, 6]
