import gc
import hashlib
import io
import json
from pathlib import Path

import pytest

from training_gym.data import load
from training_gym.spec.datasets import FileDataset
from training_gym.spec.errors import DataError


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "home"))


def tasks_of(root: Path, name: str, **settings):
    return load(FileDataset(path=name, shuffle=False, **settings), seed=0, root=root).tasks


def message_of(root: Path, name: str, **settings) -> str:
    with pytest.raises(DataError) as caught:
        tasks_of(root, name, **settings)
    assert caught.value.fix
    assert len(str(caught.value).splitlines()) == 2
    return str(caught.value)


TWICE = '{"$task": {"id": "t", "prompt": "%s", "split_key": "s"}}\n'


@pytest.mark.parametrize("text", ['{"prompt": "a"}\nnot json\n', TWICE % "a" + TWICE % "b"])
def test_a_file_is_closed_at_its_first_bad_row(tmp_path, text):
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        tasks_of(tmp_path, path.name)
    files = [found for found in gc.get_objects() if type(found) is io.FileIO]
    assert [file for file in files if file.name == str(path) and not file.closed] == []
    assert caught.value.__traceback__ is not None  # which holds the readers' frames


def test_the_same_rows_are_the_same_tasks_in_every_kind_of_file(tmp_path):
    rows = [{"prompt": "1 + 1?", "answer": "2"}, {"prompt": 'say "a, b"\nplease', "answer": "a, b"}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    (tmp_path / "t.json").write_text(json.dumps(rows, indent=1))
    (tmp_path / "t.csv").write_text(
        '\ufeffprompt,answer\r\n1 + 1?,2\r\n"say ""a, b""\nplease","a, b"\r\n', encoding="utf-8"
    )
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    first = tasks_of(tmp_path, "t.jsonl")
    assert [task.prompt_text for task in first] == [row["prompt"] for row in rows]
    assert [task.answer for task in first] == ["2", "a, b"]
    for name in ("t.json", "t.csv", "t.parquet"):
        assert tasks_of(tmp_path, name) == first


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("t.jsonl", b'{"prompt": "a"}\n{"prompt": \n', "t.jsonl, line 2 is not JSON"),
        ("t.jsonl", b'{"prompt": "a"}\n\n[1]\n', "t.jsonl, line 3 is a list"),
        ("t.jsonl", b'{"prompt": "a"}\n{"prompt": "\xff"}\n', "t.jsonl, line 2 is not UTF-8"),
        ("t.jsonl", b'{"question": "a"}\n', "t.jsonl, line 1 has no column 'prompt'"),
        ("t.jsonl", b'{"prompt": "\\ud800"}\n', "t.jsonl, line 1 holds half of a surrogate"),
        ("t.jsonl", b"[" * 100_000 + b"\n", "t.jsonl, line 1 is not usable JSON"),
        ("t.csv", b"prompt,answer\na,b\nc\n", "t.csv, line 3 has 1 fields, the header has 2"),
        ("t.csv", b'prompt,answer\na,"b\nb"\nc\n', "t.csv, line 4 has 1 fields"),
        ("t.csv", b'prompt,answer\na,b\n"c,d\n', "t.csv, line 3 is not csv"),
        ("t.csv", b"prompt,prompt\na,b\n", "two columns called 'prompt'"),
        ("t.csv", b"prompt,answer\na,b\n\xff,d\n", "t.csv, line 3 is not UTF-8"),
        ("t.parquet", b"PAR1 not really", "t.parquet is not a readable parquet file"),
        ("t.jsonl", b"", "t.jsonl has no rows"),
        ("t.csv", b"prompt,answer\n", "t.csv has no rows"),
        ("t.xlsx", b"", "t.xlsx is of no known kind"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path, name, content, wanted):
    (tmp_path / name).write_bytes(content)
    assert wanted in message_of(tmp_path, name)


def test_a_missing_file_suggests_its_neighbour(tmp_path):
    (tmp_path / "topics.jsonl").write_text("{}")
    assert "did you mean 'topics.jsonl'?" in message_of(tmp_path, "topic.jsonl")
    assert "no folder" in message_of(tmp_path, "nowhere/topic.jsonl")


def test_a_missing_column_suggests_the_nearest(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"promt": "a", "solution": "b"}')
    assert "set input_column; did you mean 'promt'?" in message_of(tmp_path, "t.jsonl")
    settings = {"input_column": "promt", "output_column": "solutoin"}
    assert "did you mean 'solution'?" in message_of(tmp_path, "t.jsonl", **settings)
    settings = {"input_column": "promt", "split_column": "repo"}
    assert "no column 'repo'" in message_of(tmp_path, "t.jsonl", **settings)


def test_an_expected_hash_is_checked(tmp_path):
    content = b'{"prompt": "a"}\n'
    (tmp_path / "t.jsonl").write_bytes(content)
    right = hashlib.sha256(content).hexdigest()
    assert len(tasks_of(tmp_path, "t.jsonl", sha256=right)) == 1
    assert "expected 000000000000" in message_of(tmp_path, "t.jsonl", sha256="0" * 64)


def test_a_csv_field_may_be_longer_than_the_modules_default(tmp_path):
    (tmp_path / "t.csv").write_text("prompt\n" + "a" * 200_000 + "\n")
    assert len(tasks_of(tmp_path, "t.csv")[0].prompt_text) == 200_000


def test_columns_beyond_json_are_left_out_and_named(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    rows = [{"prompt": "a", "image": b"\x00", "day": None, "rate": float("nan")}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    found = load(FileDataset(path="t.parquet"), seed=0, root=tmp_path)
    assert found.report.columns_left_out == ("image",)
    assert found.tasks[0].metadata == {"day": None, "rate": None}
