"""The index is disposable, shared, and never wrong about what was appended."""

import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from training_gym.records.index import EpisodeQuery, Index, SeriesQuery
from training_gym.spec.errors import RecordsError


def everything(index, run):
    curves = index.series((run,), SeriesQuery(names=("*",), max_points=10_000))
    page = index.episodes(run, EpisodeQuery(limit=1000, hidden=True))
    return curves, page.episodes, index.logs(run).lines, index.timeline(run).spans


def test_deleted_it_comes_back_the_same(index, demo, tmp_path):
    run = demo("resumed")
    before = everything(index, run)
    index.close()
    shutil.rmtree(tmp_path / "cache")
    assert everything(index, run) == before


@pytest.mark.parametrize("damage", ["garbage", "half", "page", "layout"])
def test_damaged_it_is_built_again(index, demo, tmp_path, damage):
    run = demo()
    before = everything(index, run)
    index.close()
    path = tmp_path / "cache" / "runs" / f"{run}.sqlite"
    data = path.read_bytes()
    if damage == "garbage":
        path.write_bytes(os.urandom(len(data)))
    elif damage == "half":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "page":
        path.write_bytes(data[:4096] + b"\xff" * (len(data) - 8192) + data[-4096:])
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 999")
        connection.close()
    assert everything(Index(tmp_path / "runs", tmp_path / "cache"), run) == before


def test_a_torn_last_line_is_not_there_yet(index, new_run, record):
    run = new_run()
    record(run, [(1, {"a": 1.0}), (2, {"a": 2.0})])
    segment = next((run.streams / "metrics").iterdir())
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-20])
    query = SeriesQuery(names=("a",))
    assert index.series(("r1",), query)[0].mean == (1.0,)
    segment.write_bytes(whole)
    assert index.series(("r1",), query)[0].mean == (1.0, 2.0)


def test_a_torn_line_in_the_middle_loses_only_itself(index, new_run, record):
    run = new_run()
    record(run, [(n, {"a": float(n)}) for n in (1, 2, 3)])
    segment = next((run.streams / "metrics").iterdir())
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(lines[0] + lines[1][:30] + b"\n" + lines[2])
    assert index.series(("r1",), SeriesQuery(names=("a",)))[0].mean == (1.0, 3.0)
    assert index.overview("r1").damaged == 1


def test_a_file_that_became_shorter_is_read_again(index, new_run, record):
    run = new_run()
    record(run, [(n, {"a": float(n)}) for n in (1, 2, 3)])
    index.refresh("r1")
    segment = next((run.streams / "metrics").iterdir())
    segment.write_bytes(segment.read_bytes().splitlines(keepends=True)[0])
    assert index.series(("r1",), SeriesQuery(names=("a",)))[0].mean == (1.0,)


def test_a_segment_that_retention_took_is_forgotten(index, demo, tmp_path):
    run = demo()
    assert index.episodes(run).total > 0
    shutil.rmtree(tmp_path / "runs" / run / "streams" / "episodes")
    assert index.episodes(run).total == 0


def test_a_line_longer_than_a_block_is_taken_in(index, new_run, monkeypatch):
    from training_gym.records.recorder import Recorder

    monkeypatch.setattr("training_gym.records.index.tailing.BLOCK_BYTES", 1000)
    with Recorder(new_run(), writer="engine", attempt=1) as recorder:
        for number in range(5):
            recorder.log(f"{number} " + "x" * (10_000 if number == 2 else 10))
    assert [line.text[0] for line in index.logs("r1").lines] == list("01234")


def test_several_processes_take_each_record_in_once(demo, tmp_path):
    run = demo(steps=30)
    script = textwrap.dedent(f"""
        from pathlib import Path
        from training_gym.records.index import *
        index = Index(Path({str(tmp_path / "runs")!r}), Path({str(tmp_path / "cache")!r}))
        for _ in range(3):
            print(index.episodes({run!r}).total, index.overview({run!r}).counts["metrics"])
    """)
    started = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = {process.communicate(timeout=120)[0].splitlines()[-1] for process in started}
    assert all(process.returncode == 0 for process in started)
    counted = Index(tmp_path / "runs", tmp_path / "cache2")
    overview = counted.overview(run)
    assert answers == {f"{overview.counts['episodes']} {overview.counts['metrics']}"}


@pytest.mark.parametrize("name", ["", "..", "../../etc", "a/b", "nobody", "a\0b"])
def test_an_unknown_run_is_refused(index, name):
    with pytest.raises(RecordsError):
        index.overview(name)


def test_cursors_that_are_none_are_refused(index, demo):
    run = demo()
    for ask in (
        lambda: index.changes(run, "nonsense"),
        lambda: index.events(run, cursor="nonsense"),
        lambda: index.episodes(run, EpisodeQuery(cursor="nonsense")),
    ):
        with pytest.raises(RecordsError, match="cursor"):
            ask()


def test_only_what_is_large_from_the_start_has_large_pages(index, demo, tmp_path, monkeypatch):
    run = demo()
    before = everything(index, run)
    index.close()
    path = tmp_path / "cache" / "runs" / f"{run}.sqlite"
    small = path.stat().st_size
    shutil.rmtree(tmp_path / "cache")
    monkeypatch.setattr("training_gym.records.index.store.LARGE_BYTES", 1000)
    assert everything(index, run) == before
    index.close()
    assert path.stat().st_size > 2 * small
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA page_size").fetchone() == (32 * 1024,)
    connection.close()


@pytest.mark.parametrize("piece", [1, 700, 5000])
def test_what_is_parsed_at_once_makes_no_difference(index, demo, tmp_path, monkeypatch, piece):
    run = demo("hostile")
    before = everything(index, run)
    monkeypatch.setattr("training_gym.records.index.tailing.PIECE_BYTES", piece)
    assert everything(Index(tmp_path / "runs", tmp_path / "other"), run) == before


def test_an_index_that_grew_with_its_run_is_the_same_as_one_built_at_once(demo, tmp_path):
    run = demo()
    whole = tmp_path / "runs" / run
    shutil.copytree(whole, tmp_path / "grown" / run)
    streams = sorted((tmp_path / "grown" / run).glob("streams/*/*.jsonl"))
    lines = {path: path.read_bytes() for path in streams}
    index = Index(tmp_path / "grown", tmp_path / "grown-cache")
    for part in range(1, 8):
        for path, data in lines.items():
            path.write_bytes(data[: len(data) * part // 7])  # lines torn in the middle
        index.refresh(run)
    grown = everything(index, run)
    built = everything(Index(tmp_path / "runs", tmp_path / "built-cache"), run)
    assert (grown[0], grown[1]) == (built[0], built[1])
    assert [line.text for line in grown[2]] == [line.text for line in built[2]]
    spans = [
        sorted((span.writer, span.name, span.start, span.end or 0.0) for span in found[3])
        for found in (grown, built)
    ]
    assert spans[0] == spans[1]


def test_a_process_killed_while_it_rebuilds_leaves_what_the_next_one_finishes(demo, tmp_path):
    run = demo(steps=30)
    built = everything(Index(tmp_path / "runs", tmp_path / "whole"), run)
    script = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from training_gym.records.index import Index, tailing
        tailing.BLOCK_BYTES = 4000
        taken = []
        take_in = tailing._take_in
        def counted(*arguments):
            take_in(*arguments)
            taken.append(1)
            if len(taken) == 12:
                os.kill(os.getpid(), signal.SIGKILL)
        tailing._take_in = counted
        Index(Path({str(tmp_path / "runs")!r}), Path({str(tmp_path / "killed")!r})).refresh({run!r})
    """)
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -9
    after = everything(Index(tmp_path / "runs", tmp_path / "killed"), run)
    assert (after[0], after[1]) == (built[0], built[1])
