"""Lines of episodes are read in short where that is possible: nothing may come of it but speed."""

import json
import sqlite3

import pytest

from training_gym.records.demo import DemoShape, write_demo_run
from training_gym.records.index import Index, tailing
from training_gym.records.index.columns import rollup
from training_gym.records.index.decode import compact, record_of
from training_gym.records.index.episode_heads import head_of, quick_reader
from training_gym.records.index.sampled import SidecarReader

SMALL = {"steps": 6, "groups": 2, "group_size": 3, "evaluation_tasks": 3, "answer_words": 10}


def contents(path):
    """Every row of a run's database but what is drawn by lot."""
    with sqlite3.connect(path) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
        found = {
            name: connection.execute(f"SELECT * FROM {name}").fetchall()
            for name in tables
            if not name.startswith(("sqlite_", "episodes_", "logs_", "spans_", "groups_"))
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
        monkeypatch.setattr(tailing, "quick_reader", lambda: lambda line: None)
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
    assert quick_reader()(text) == whole


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
    assert quick_reader()(text) is None


def test_what_a_record_says_is_kept_as_it_was():
    for said in ({"a": [1, 2.5, None, "x"]}, {"a": float("inf")}, {"a": 2**80}, {"a": "é"}):
        assert json.loads(compact(said)) == said


def test_rollups_leave_out_what_is_no_number():
    data = [float(number % 7) for number in range(32)]
    assert list(rollup(data, 16)) == [0, 0, 6, 6, sum(data[:16]) / 16, sum(data[16:]) / 16]
    data[3] = float("nan")
    assert list(rollup(data, 16))[:4] == [0, 0, 6, 6]
