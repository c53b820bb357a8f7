import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_gym.data import drop_long, load, write_rows
from training_gym.spec.datasets import FileDataset, RowsDataset
from training_gym.spec.errors import DataError
from training_gym.spec.tasks import Task

NUMBERS = [f"number {n}" for n in range(200)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def ids(rows, *, side="all", seed=0, **settings):
    return [
        task.id
        for task in load(RowsDataset.of(rows, **settings), seed=seed, side=side, root=".").tasks
    ]


def test_the_order_depends_on_the_seed_only():
    first = ids(NUMBERS)
    assert first == ids(reversed(NUMBERS))
    assert sorted(first) == sorted(ids(NUMBERS, seed=1))
    assert first != ids(NUMBERS, seed=1)
    assert first != ids(NUMBERS, shuffle=False)


def test_the_order_is_the_same_in_another_process_with_another_hash_seed(tmp_path):
    program = (
        "from training_gym.data import load\n"
        "from training_gym.spec.datasets import RowsDataset\n"
        "rows = [f'number {n}' for n in range(50)]\n"
        "print(load(RowsDataset.of(rows), seed=3, root='.').sha256)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    here = load(RowsDataset.of(NUMBERS[:50]), seed=3, root=".").sha256
    assert outputs == {f"{here}\n"}


@settings(max_examples=settings.default.max_examples // 3)
@given(st.sets(st.text("abc ", min_size=1, max_size=8), min_size=4, max_size=40), st.data())
def test_adding_rows_moves_no_task_to_the_other_side(rows, data):
    more = data.draw(st.lists(st.text("xyz", min_size=1, max_size=5), max_size=20))
    try:
        few = set(ids(sorted(rows), side="eval", eval_fraction=0.4))
    except DataError:
        return
    train = set(ids([*more, *sorted(rows)], side="train", eval_fraction=0.4))
    held_out = set(ids([*more, *sorted(rows)], side="eval", eval_fraction=0.4))
    assert few <= held_out
    assert not train & held_out
    assert train | held_out == set(ids([*more, *sorted(rows)]))


def test_equal_split_keys_stay_on_one_side():
    rows = [{"prompt": name, "repo": n % 9} for n, name in enumerate(NUMBERS)]
    kwargs = {"split_column": "repo", "eval_fraction": 0.4}
    sides = {}
    for side in ("train", "eval"):
        for task in load(RowsDataset.of(rows, **kwargs), seed=0, side=side, root=".").tasks:
            sides.setdefault(task.metadata["repo"], set()).add(side)
    assert len(sides) == 9
    assert all(len(found) == 1 for found in sides.values())


def test_a_side_without_tasks_is_an_error():
    for side in ("train", "eval"):
        with pytest.raises(DataError, match=r"eval_fraction=0\.01 of 3 tasks leaves none"):
            ids(["a", "b", "c"], side=side, eval_fraction=0.01)
    with pytest.raises(DataError, match="holds nothing out"):
        ids(NUMBERS, side="eval")
    assert len(ids(NUMBERS, side="train")) == len(NUMBERS)


def test_the_limit_is_taken_after_the_shuffle_and_counted():
    found = load(RowsDataset.of(NUMBERS, limit=20), seed=5, root=".")
    assert [task.id for task in found.tasks] == ids(NUMBERS, seed=5)[:20]
    assert found.report.dropped_by_limit == 180


def test_an_empty_list_is_an_error():
    with pytest.raises(DataError, match="the list of rows has no rows"):
        ids([])


def test_written_rows_are_the_same_tasks(tmp_path, home):
    ready = Task(id="mine", prompt="p\u2028q", answer={"a": 1.5}, split_key="k")
    rows = ["plain", {"prompt": "ünï", "answer": "1", "extra": {"b": [None, True]}}, ready]
    dataset = RowsDataset.of(rows, eval_fraction=0.5, output_column="answer")
    # A dictionary without the default answer column keeps working beside one that has it.
    written = write_rows(dataset, tmp_path / "source")
    assert written == write_rows(dataset, tmp_path / "source")
    assert written.path.startswith("rows-")
    assert written.eval_fraction == 0.5
    from_file = load(written, seed=1, root=tmp_path / "source")
    assert from_file == load(dataset, seed=1, root=tmp_path)
    assert FileDataset.read_json(written.model_dump_json()) == written


def test_a_damaged_cache_entry_is_written_again(tmp_path, home):
    (tmp_path / "t.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n{"prompt": "b"}\n')
    dataset = FileDataset(path="t.jsonl")
    first = load(dataset, seed=0, root=tmp_path)
    (entry,) = (home / "cache" / "tasks").iterdir()
    whole = entry.read_bytes()
    assert load(dataset, seed=0, root=tmp_path) == first
    for damage in (b"", b"{}", whole[:-5], whole.replace(b'"a"', b'"c"'), b"\xff\n" + whole):
        entry.write_bytes(damage)
        assert load(dataset, seed=0, root=tmp_path) == first
        assert entry.read_bytes() == whole


def test_the_cache_is_used_and_depends_on_file_and_settings(tmp_path, home):
    (tmp_path / "t.jsonl").write_text('{"prompt": "a"}\n')
    dataset = FileDataset(path="t.jsonl")
    load(dataset, seed=0, root=tmp_path)
    (entry,) = (home / "cache" / "tasks").iterdir()
    before = entry.stat().st_mtime_ns
    load(dataset.changed(limit=1), seed=9, root=tmp_path)
    assert entry.stat().st_mtime_ns == before
    assert len(list(entry.parent.iterdir())) == 1
    changed = load(dataset.changed(template="{input}!"), seed=0, root=tmp_path)
    assert changed.tasks[0].prompt_text == "a!"
    (tmp_path / "t.jsonl").write_text('{"prompt": "b"}\n')
    assert load(dataset, seed=0, root=tmp_path).tasks[0].prompt_text == "b"


def test_a_home_that_cannot_be_written_costs_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "file"))
    (tmp_path / "t.jsonl").write_text('{"prompt": "a"}\n')
    assert len(load(FileDataset(path="t.jsonl"), seed=0, root=tmp_path).tasks) == 1


def test_long_prompts_are_dropped_and_counted():
    tasks = load(RowsDataset.of(["a", "bb", "ccc"], shuffle=False), seed=0, root=".").tasks

    def measure(task: Task) -> int:
        return len(task.prompt_text)

    assert drop_long(tasks, measure, 2) == (tasks[:2], 1)
    with pytest.raises(DataError, match="all 3 prompts are longer than 0 tokens"):
        drop_long(tasks, measure, 0)


def test_rows_in_memory_whose_prompts_are_messages_are_read_as_such(tmp_path):
    shown = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    rows = RowsDataset.of([{"prompt": shown, "answer": "4"}])
    (task,) = load(write_rows(rows, tmp_path), seed=0, root=tmp_path).tasks
    assert [message.role for message in task.prompt] == ["system", "user"]
    assert RowsDataset.of(["text"]).input_format == "text"
    assert rows.changed(shuffle=False).rows == rows.rows
