import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from training_gym.records import documents
from training_gym.records.documents import (
    create_document,
    encode,
    read_document,
    to_bytes,
    write_document,
)
from training_gym.spec.episodes import Score
from training_gym.spec.errors import RecordsError


class ArrayNumber:
    """Like a number of numpy or torch."""

    def tolist(self):
        return 0.5


def test_numbers_that_json_cannot_hold_become_strings():
    nan, inf = float("nan"), float("inf")
    text = encode({"a": nan, "b": [inf, (-inf,)], "c": {"d": 1.5}, "e": None, "f": True})
    assert json.loads(text) == {
        "a": "NaN",
        "b": ["Infinity", ["-Infinity"]],
        "c": {"d": 1.5},
        "e": None,
        "f": True,
    }


def test_values_paths_sets_and_array_numbers_are_plain(tmp_path):
    text = encode({"s": Score(value=1), "p": tmp_path, "x": {2, 1}, "n": ArrayNumber()})
    decoded = json.loads(text)
    assert decoded["s"]["value"] == 1
    assert decoded["p"] == str(tmp_path)
    assert decoded["x"] == [1, 2]
    assert decoded["n"] == 0.5


def test_what_is_no_json_is_named():
    with pytest.raises(TypeError, match="object"):
        encode({"a": object()})


def test_half_surrogates_survive_as_escapes():
    text = encode({"a": "x\ud800é"})
    assert json.loads(to_bytes(text)) == {"a": "x\ud800é"}


def test_write_replaces_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "d.json"
    write_document(path, {"a": 1})
    write_document(path, {"a": 2})
    assert read_document(path) == {"a": 2}
    assert os.listdir(tmp_path) == ["d.json"]


def test_of_many_creators_one_wins(tmp_path):
    path = tmp_path / "d.json"
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: create_document(path, {"n": n}), range(8)))
    assert sum(won) == 1
    assert read_document(path) == {"n": won.index(True)}
    assert os.listdir(tmp_path) == ["d.json"]


def test_without_hard_links_creation_is_still_exclusive(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(documents.os, "link", refuse)
    assert create_document(tmp_path / "d.json", {"a": 1})
    assert not create_document(tmp_path / "d.json", {"a": 2})
    assert read_document(tmp_path / "d.json") == {"a": 1}


def test_missing_and_damaged_documents_are_two_lines(tmp_path):
    with pytest.raises(RecordsError, match="there is no"):
        read_document(tmp_path / "d.json")
    (tmp_path / "d.json").write_text("{")
    with pytest.raises(RecordsError, match="is not JSON"):
        read_document(tmp_path / "d.json")
    (tmp_path / "d.json").write_text("[]")
    with pytest.raises(RecordsError, match="list"):
        read_document(tmp_path / "d.json")


@pytest.mark.parametrize(
    ("code", "fix"), [(errno.ENOSPC, "free some space"), (errno.EROFS, "TRAINING_GYM_HOME")]
)
def test_a_refused_write_says_what_to_do_and_keeps_the_old(tmp_path, monkeypatch, code, fix):
    path = tmp_path / "d.json"
    write_document(path, {"a": 1})

    def refuse(_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(documents.os, "fsync", refuse)
    with pytest.raises(RecordsError) as caught:
        write_document(path, {"a": 2})
    assert fix in caught.value.fix
    assert read_document(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["d.json"]
