"""`init`, and the tutorials it writes."""

import csv
import io
import json
from pathlib import Path

import pytest

from training_gym.cli.program import program
from training_gym.cli.templates import TEMPLATES, content

TUTORIALS = Path(__file__).parents[3] / "tutorials"


def test_every_tutorial_is_a_template_and_nothing_else_is():
    files = {str(file.relative_to(TUTORIALS)) for file in TUTORIALS.rglob("*") if file.is_file()}
    files = {file for file in files if "__pycache__" not in file}
    assert {file for template in TEMPLATES.values() for file in template.files} == files


@pytest.mark.parametrize("name", ["haiku", "math", "reasoning", "code", "sft"])
def test_a_definition_takes_fewer_than_60_lines(name):
    longest = 100 if name in ("guess-number", "calculator", "coding-agent") else 60
    assert len(content(TEMPLATES[name].files[0]).splitlines()) < longest


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_written_byte_for_byte_with_the_next_commands(command, tmp_path, name):
    answer = command("init", name, tmp_path / "new")
    assert answer.code == 0
    written = [Path(line) for line in answer.out.splitlines()]
    assert [path.read_bytes() for path in written] == [
        (TUTORIALS / file).read_bytes() for file in TEMPLATES[name].files
    ]
    assert f"training-gym train {written[0]}" in answer.err


def test_json_of_init_names_files_and_commands(command, tmp_path):
    (found,) = command("init", "math", tmp_path, "--json").objects
    assert found["files"] == [f"{tmp_path}/math_jsonl.py", f"{tmp_path}/data/math.jsonl"]
    assert found["next"][1] == f"{program()} train {tmp_path}/math_jsonl.py"


def test_nothing_is_overwritten_and_then_nothing_is_written(command, tmp_path):
    data = tmp_path / "data" / "math.jsonl"
    data.parent.mkdir()
    data.write_text("mine")
    answer = command("init", "math", tmp_path)
    assert answer.code == 2
    assert f"{data} exists" in answer.err
    assert data.read_text() == "mine"
    assert not (tmp_path / "math_jsonl.py").exists()


def test_an_unknown_template_has_a_suggestion(command):
    answer = command("init", "haikus")
    assert answer.code == 2
    assert "did you mean 'haiku'?" in answer.err


def test_a_folder_that_cannot_be_written_is_two_lines(command, tmp_path):
    (tmp_path / "file").write_text("")
    answer = command("init", "haiku", tmp_path / "file" / "below")
    assert answer.code == 2
    assert len(answer.err.splitlines()) == 2


def test_templates_are_listed(command):
    assert command("init", "--json").objects[0]["templates"].keys() == TEMPLATES.keys()


def test_the_data_files_have_the_columns_the_tutorials_name():
    problems = [json.loads(line) for line in content("data/math.jsonl").splitlines()]
    assert len(problems) >= 64
    assert all(row.keys() == {"problem", "answer"} for row in problems)
    assert len({row["problem"] for row in problems}) == len(problems)
    dates = list(csv.DictReader(io.StringIO(content("data/sft.csv").decode())))
    assert len({row["question"] for row in dates}) == len(dates) >= 100
    assert all(len(row["answer"]) == len("2024-03-03") for row in dates)
