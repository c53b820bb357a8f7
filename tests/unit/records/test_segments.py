import os

import pytest

from training_gym.records import segments as module
from training_gym.records.segments import SegmentWriter, segments


def names(folder):
    return [segment.path.name for segment in segments(folder)]


def test_names_are_taken_apart_and_ordered(tmp_path):
    for name in ["a-b-2-10.jsonl", "a-b-2-9.jsonl", "a-b-10-0.jsonl", "x.jsonl", "a-1-0.tok"]:
        (tmp_path / name).touch()
    found = segments(tmp_path)
    assert [(s.writer, s.attempt, s.number) for s in found] == [
        ("a-b", 2, 9),
        ("a-b", 2, 10),
        ("a-b", 10, 0),
    ]
    assert segments(tmp_path / "absent") == []


def test_full_segments_roll_and_no_file_is_taken_over(tmp_path):
    first = SegmentWriter(tmp_path, "w", 1, limit_bytes=4)
    for line in (b"12\n", b"34\n", b"56\n"):
        first.roll_if_full()
        first.write(line)
    second = SegmentWriter(tmp_path, "w", 1)
    second.write(b"x\n")
    first.close()
    second.close()
    assert names(tmp_path) == ["w-1-0.jsonl", "w-1-1.jsonl", "w-1-2.jsonl"]
    assert [s.path.read_bytes() for s in segments(tmp_path)] == [b"12\n34\n", b"56\n", b"x\n"]


def test_a_full_sidecar_rolls_too(tmp_path):
    writer = SegmentWriter(tmp_path, "w", 1, limit_bytes=4)
    assert writer.write_tokens(b"12345") == 0
    assert writer.write_tokens(b"6") == 5
    writer.roll_if_full()
    assert writer.write_tokens(b"7") == 0
    writer.close()
    assert (tmp_path / "w-1-0.tok").read_bytes() == b"123456"
    assert (tmp_path / "w-1-1.tok").read_bytes() == b"7"


def half_then_fail(monkeypatch):
    """The disk takes half of a write and refuses the rest."""
    real = os.write
    calls = []

    def write(descriptor, data):
        calls.append(len(data))
        if len(calls) == 1:
            return real(descriptor, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "write", write)


def test_half_a_line_is_taken_back(tmp_path, monkeypatch):
    writer = SegmentWriter(tmp_path, "w", 1)
    writer.write(b"good\n")
    with monkeypatch.context() as patch:
        half_then_fail(patch)
        with pytest.raises(OSError, match="No space"):
            writer.write(b"torn line\n")
    writer.write(b"next\n")
    writer.close()
    assert (tmp_path / "w-1-0.jsonl").read_bytes() == b"good\nnext\n"


def test_a_file_whose_tail_stays_torn_is_left_for_good(tmp_path, monkeypatch):
    writer = SegmentWriter(tmp_path, "w", 1)
    writer.write(b"good\n")
    with monkeypatch.context() as patch:
        half_then_fail(patch)
        patch.setattr(module.os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(5, "io")))
        with pytest.raises(OSError, match="No space"):
            writer.write(b"torn line\n")
    writer.write(b"next\n")
    writer.close()
    assert (tmp_path / "w-1-0.jsonl").read_bytes() == b"good\ntorn "
    assert (tmp_path / "w-1-1.jsonl").read_bytes() == b"next\n"
