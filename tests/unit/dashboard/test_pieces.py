import json
from pathlib import Path

from training_gym.dashboard.pieces import _pieces, texts


def write(path: Path, document: dict[str, object]) -> tuple[bytes, ...]:
    path.write_text(json.dumps(document))
    found = _pieces(path, path.stat().st_mtime_ns)
    assert found is not None
    return found


def test_byte_level_vocabularies_are_read(tmp_path: Path) -> None:
    pieces = write(
        tmp_path / "tokenizer.json",
        {
            "model": {"vocab": {"Hello": 0, "Ġworld": 1, "Ã": 2, "¤": 3, "Ċ": 4}},
            "decoder": {"type": "ByteLevel"},
            "added_tokens": [{"id": 5, "content": "<|end|>"}],
        },
    )
    assert texts([0, 1, 2, 3, 4, 5], pieces) == ("Hello", " world", "", "ä", "\n", "<|end|>")


def test_sentence_piece_vocabularies_are_read(tmp_path: Path) -> None:
    pieces = write(
        tmp_path / "tokenizer.json",
        {"model": {"vocab": [["▁the", -1.0], ["<0x0A>", -2.0]]}, "decoder": {"type": "Sequence"}},
    )
    assert texts([0, 1], pieces) == (" the", "\n")


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert texts([0, 1], [b"\xff", b"a"]) == ("\ufffd", "a")
    assert texts([0], [b"\xc3"]) == ("\ufffd",)
    assert texts([7], [b"a"]) == ("",)


def test_a_file_that_is_not_understood_is_none(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    assert _pieces(path, 1) is None
