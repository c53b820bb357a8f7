import os

import pytest

from training_gym.jobs.outputs import LineSplitter, Outputs, shown
from training_gym.records.readers import read_stream
from training_gym.records.recorder import Recorder
from training_gym.records.segments import _Appender
from training_gym.spec.errors import EngineError, RecordsError
from training_gym.spec.job import Tap
from training_gym.testing.fake_engine import tiny_job


def test_lines_come_whole_however_the_bytes_arrive():
    splitter = LineSplitter()
    assert splitter.feed(b"on") == []
    assert splitter.feed(b"e\ntwo\n\nth") == [b"one", b"two", b""]
    assert splitter.end() == [b"th"]
    assert splitter.end() == []


def test_endless_lines_are_split_between_characters():
    text = "aé€😀" * 50
    splitter = LineSplitter(limit_bytes=16)
    pieces = []
    for byte in text.encode():
        pieces += splitter.feed(bytes([byte]))
    pieces += splitter.feed(b"\n")
    assert max(len(piece) for piece in pieces) <= 16
    assert "".join(piece.decode() for piece in pieces) == text
    assert LineSplitter(limit_bytes=8).feed(b"\x80" * 9 + b"\n") == [b"\x80" * 8, b"\x80"]


def test_a_progress_bar_shows_its_last_state_and_bad_bytes_are_replaced():
    assert shown(b"10%\r50%\r100%\r") == "100%"
    assert shown(b"plain\r") == "plain"
    assert shown(b"a\xff\xfeb") == "a��b"


@pytest.fixture
def tapped(run):
    """What records come of some output, through given taps."""

    def tapped(taps=(), stdout=b"", stderr=b"", file=b""):
        run.attempt(1).mkdir(parents=True, exist_ok=True)
        job = tiny_job("r1").changed(taps=taps)
        with Recorder(run, writer="runner", attempt=1) as recorder:
            outputs = Outputs(run, job, 1, recorder)
            for source, data in (("stdout", stdout), ("stderr", stderr)):
                reader, writer = os.pipe()
                os.write(writer, data)
                os.close(writer)
                outputs.drain(source, os.fdopen(reader, "rb"))
            (run.path / "engine.log").write_bytes(file)
            outputs.poll_files()
            outputs.close()
        return outputs

    return tapped


def test_without_taps_both_pipes_are_logged(run, tapped):
    outputs = tapped(stdout=b"out\nlast", stderr=b"err\n")
    logs = {(record["source"], record["text"]) for record in read_stream(run, "logs")}
    assert logs == {("stdout", "out"), ("stdout", "last"), ("stderr", "err")}
    assert outputs.last_lines == ("err",)
    log = (run.attempt(1) / "output.log").read_bytes()
    assert sorted(log.splitlines()) == [b"err", b"last", b"out"]


def test_a_tap_turns_json_lines_into_records_and_the_rest_into_logs(run, tapped):
    tapped(
        taps=(
            Tap(source="stdout", stream="metrics"),
            Tap(source="file", path="engine.log", stream="events"),
        ),
        stdout=b'{"loss": 0.5, "note": "x", "batch": 3}\nhello\n[1]\n',
        stderr=b"not tapped\n",
        file=b'{"kind": "saved", "seq": 9}\nhalf',
    )
    metric = read_stream(run, "metrics")[0]
    assert (metric["values"], metric["batch"]) == ({"loss": 0.5}, 3)
    event = read_stream(run, "events")[0]
    assert event["kind"] == "saved"
    assert event["seq"] != 9
    logs = {(record["source"], record["text"]) for record in read_stream(run, "logs")}
    assert logs == {("stdout", "hello"), ("stdout", "[1]"), ("engine.log", "half")}


@pytest.mark.parametrize(
    ("tap", "message"),
    [
        (Tap(source="stdout", stream="metricks"), "'metricks'"),
        (Tap(source="stdout", stream="episodes"), "'episodes'"),
        (Tap(source="file"), "path None"),
        (Tap(source="stdout", path="x"), "path 'x'"),
    ],
)
def test_a_tap_that_leads_nowhere_is_refused(tapped, tap, message):
    with pytest.raises(EngineError, match=message):
        tapped(taps=(tap,))


def test_a_full_disk_does_not_stop_the_draining(run, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_Appender, "append", refuse)
    run.attempt(1).mkdir(parents=True)
    job = tiny_job("r1").changed(taps=(Tap(source="stdout", stream="events"),))
    recorder = Recorder(run, writer="runner", attempt=1)
    outputs = Outputs(run, job, 1, recorder)
    reader, writer = os.pipe()
    outputs.drain("stdout", os.fdopen(reader, "rb"))
    line = b'{"kind": "x"}\n'
    for _ in range(20_000):  # more than a pipe holds
        os.write(writer, line)
    os.close(writer)
    outputs.close()
    assert (run.attempt(1) / "output.log").read_bytes() == line * 20_000
    with pytest.raises(RecordsError, match="No space"):
        recorder.close()
