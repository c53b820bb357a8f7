import json
import shutil
from pathlib import Path

import pytest

from training_gym.records.annotations import add_note, add_tag, remove_tag
from training_gym.records.index import Index, RunQuery, TimelineQuery, catalogue
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.episodes import Counters
from training_gym.spec.errors import RecordsError


def listed(index, **query):
    page = index.runs(RunQuery(**query))
    while page.pending:
        page = index.runs(RunQuery(**query))
    return page


def test_a_list_is_filtered_sorted_and_cut(index, demo):
    demo("healthy"), demo("stall"), demo("hostile")
    assert [row.run_id for row in listed(index, status=("stopped",)).runs] == ["demo-stall-0"]
    assert [row.run_id for row in listed(index, text="HOST").runs] == ["demo-hostile-0"]
    assert [row.run_id for row in listed(index, tags=("demo", "stall")).runs] == ["demo-stall-0"]
    by_step = listed(index, order="step", descending=False, limit=1)
    assert (by_step.runs[0].run_id, by_step.total) == ("demo-stall-0", 3)
    assert "healthy" in by_step.tags


def test_a_list_follows_what_happens_to_ended_runs(index, demo, tmp_path):
    run = demo()
    before = listed(index).runs[0]
    add_tag(RunDirectory(tmp_path / "runs" / run), "good")
    add_note(RunDirectory(tmp_path / "runs" / run), "look")
    after = listed(index).runs[0]
    assert after.tags == (*before.tags, "good")
    assert after.num_notes == 1
    assert after.version != before.version
    remove_tag(RunDirectory(tmp_path / "runs" / run), "good")
    assert listed(index).runs[0].version != after.version


def test_a_first_list_reads_each_file_of_a_run_once(index, demo, tmp_path, monkeypatch):
    run = demo()
    full = listed(index).runs[0]
    monkeypatch.setattr(catalogue, "INDEXING_S", -1.0)
    read = []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path), original(path))[1])
    (row,) = Index(tmp_path / "runs", tmp_path / "empty").runs().runs
    assert not row.indexed
    folder = tmp_path / "runs" / run
    assert sorted(read) == [folder / "manifest.json", folder / "result.json"]
    told = ("run_id", "name", "model", "tags", "status", "created_at", "attempt", "num_steps")
    assert [getattr(row, name) for name in told] == [getattr(full, name) for name in told]


def test_a_result_that_a_later_attempt_made_void_is_no_reason(index, demo, tmp_path, monkeypatch):
    folder = tmp_path / "runs" / demo("stall")
    monkeypatch.setattr(catalogue, "INDEXING_S", -1.0)

    def row():
        return Index(tmp_path / "runs", tmp_path / "empty").runs().runs[0]

    assert row().status == "stopped"
    (folder / "attempts" / "9").mkdir()
    assert row().status in ("queued", "lost")
    assert row().attempt == 9


@pytest.mark.parametrize("name", ['"half \\ud800"', '"raw \xed\xa0\x80"', '"\\ud83d\\ude00 whole"'])
def test_names_can_be_sent_on_as_text(index, demo, tmp_path, name):
    path = tmp_path / "runs" / demo() / "manifest.json"
    manifest = json.loads(path.read_text())
    text = json.dumps({**manifest, "name": "NAME"}).encode()
    path.write_bytes(text.replace(b'"NAME"', name.encode("latin-1")))
    found = listed(index).runs[0].name
    found.encode()
    assert found.split()[0] in ("half", "raw", "\U0001f600")


def test_a_list_hears_of_records_that_come_late(index, demo, tmp_path):
    """From another machine, after the run's end."""
    run = RunDirectory(tmp_path / "runs" / demo())
    step = listed(index).runs[0].step + 3
    with Recorder(run, writer="late", attempt=1) as recorder:
        recorder.metrics({"reward_mean": 0.777}, Counters(batch=step))
    after = listed(index).runs[0]
    assert (after.reward, after.step) == (0.777, step)


def test_a_list_outlives_its_process_and_its_cache(index, demo, tmp_path):
    demo()
    rows = listed(index).runs
    again = Index(tmp_path / "runs", tmp_path / "cache")
    assert again.runs().runs == rows
    (tmp_path / "cache" / "runs.sqlite").write_bytes(b"garbage")
    assert listed(Index(tmp_path / "runs", tmp_path / "cache")).runs == rows


def test_a_damaged_run_says_so_and_spoils_no_list(index, demo, tmp_path):
    demo(), demo("stall")
    (tmp_path / "runs" / "demo-stall-0" / "manifest.json").write_text("{")
    rows = {row.run_id: row for row in listed(index).runs}
    assert rows["demo-stall-0"].problem
    assert not rows["demo-healthy-0"].problem
    with pytest.raises(RecordsError):
        index.overview("demo-stall-0")


def test_a_deleted_run_leaves_the_list(index, demo, tmp_path):
    run = demo()
    assert listed(index).total == 1
    shutil.rmtree(tmp_path / "runs" / run)
    assert listed(index).total == 0


def test_the_overview_knows_attempts_checkpoints_and_what_was_hidden(index, demo):
    run = demo("resumed")
    found = index.overview(run)
    assert [attempt.resumed_from for attempt in found.attempts] == [None, 3]
    assert [attempt.exit_code for attempt in found.attempts] == [137, 0]
    assert found.hidden > 0
    assert [checkpoint.batch for checkpoint in found.checkpoints] == [3, 6]
    assert found.metrics[0] == "reward_mean"
    assert found.row.step == 6


def test_definitions_are_compared_leaf_by_leaf_and_sources_line_by_line(index, demo, tmp_path):
    demo(), demo("learning_rate")
    (tmp_path / "runs" / "demo-learning-rate-0" / "source" / "demo.py").write_text("x = 1\n")
    found = index.config_difference("demo-healthy-0", "demo-learning-rate-0")
    changes = {change.path: (change.before, change.after) for change in found.changes}
    assert changes["recipe.optimizer.learning_rate"] == (1e-5, 3e-3)
    assert found.sources[0].state == "changed"
    assert "+x = 1" in found.sources[0].diff
    compared = index.compare(["demo-healthy-0", "demo-learning-rate-0"])
    assert "recipe.optimizer.learning_rate" in compared.differing
    with pytest.raises(RecordsError, match="to compare"):
        index.compare([])


def test_evaluations_are_paired_with_the_first(index, demo):
    found = index.evaluations(demo())
    assert [row.figure.step for row in found] == [0, 3, 6]
    assert found[0].difference is None
    assert found[-1].difference.mean == pytest.approx(found[-1].figure.mean - found[0].figure.mean)
    assert found[-1].checkpoint
    flips = index.flipped("demo-healthy-0", "held_out", 0, 6)
    assert len(flips.gained) + len(flips.lost) + flips.unchanged == 4
    with pytest.raises(RecordsError, match="it has steps 0, 3, 6"):
        index.flipped("demo-healthy-0", "held_out", 0, 5)


def test_the_time_of_a_batch_is_attributed(index, demo):
    found = index.timeline(demo(), TimelineQuery(first_step=2, last_step=2))
    (step,) = found.steps
    length = step.end - step.start
    assert step.step == 2
    assert 0 < step.seconds["engine"] < length
    assert step.idle_s == pytest.approx(sum(step.blame.values()))
    busy = step.seconds["engine"] + step.seconds["trainer"]
    assert busy + step.idle_s == pytest.approx(length, rel=1e-3)


def test_an_open_span_ends_nowhere_until_it_is_closed(index, new_run):
    with Recorder(new_run(), writer="engine", attempt=1) as recorder:
        recorder.record("spans", {"name": "rollout", "span": "a", "start": 1.0, "end": None})
        recorder.flush()
        assert [span.end for span in index.timeline("r1").spans] == [None]
        recorder.record("spans", {"name": "rollout", "span": "a", "start": 1.0, "end": 3.0})
        recorder.flush()
        (span,) = index.timeline("r1").spans
    assert span.end - span.start == pytest.approx(2.0)
    assert span.lane == "driver"


def test_lines_are_found_by_level_and_pattern_and_followed(index, new_run):
    from training_gym.records.index import LogQuery

    with Recorder(new_run(), writer="engine", attempt=1) as recorder:
        for text in ("all is well", "WARNING: low", "ValueError: bad", "DEBUG x"):
            recorder.log(text, source="stderr")
        recorder.flush()
        texts = [line.text for line in index.logs("r1", LogQuery(level="warning")).lines]
        assert texts == ["WARNING: low", "ValueError: bad"]
        page = index.logs("r1", LogQuery(regex="w[a-z]*l"))
        assert [line.text for line in page.lines] == ["all is well"]
        recorder.log("later", source="stdout")
        recorder.flush()
        after = index.logs("r1", LogQuery(cursor=page.newer))
        assert [line.text for line in after.lines] == ["later"]
        assert after.sources == ("stderr", "stdout")
        back = index.logs("r1", LogQuery(limit=2))
        older = index.logs("r1", LogQuery(limit=2, cursor=back.older))
        assert [line.text for line in older.lines] == ["WARNING: low", "ValueError: bad"]
        with pytest.raises(RecordsError, match="regular expression"):
            index.logs("r1", LogQuery(regex="("))


def test_the_same_seed_gives_the_same_records(demo, tmp_path):
    one = demo()
    folder = tmp_path / "runs" / one / "streams"
    before = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    shutil.rmtree(tmp_path / "runs" / one)
    demo()
    assert {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
