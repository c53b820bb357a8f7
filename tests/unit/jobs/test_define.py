import json
from pathlib import Path

import pytest

from training_gym.jobs import define as define_module
from training_gym.jobs.capture import Origin
from training_gym.jobs.define import Definition, codes_in, define
from training_gym.spec.datasets import FileDataset, HuggingFaceDataset, RowsDataset
from training_gym.spec.errors import DataError
from training_gym.spec.rewards import weighted
from training_gym.spec.run import RunSpec


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "own_rewards.py").write_text(
        "def good(episode): return 1.0\ndef brief(e): return 0.5\n"
    )
    (folder / "tasks.jsonl").write_text('{"prompt": "x"}\n')
    return folder


def defined(here: Path, **fields: object) -> Definition:
    values = {"model": "smollm2-135m", "dataset": ["x"], "reward": "own_rewards:good", **fields}
    staging = here.parent / "staging"
    staging.mkdir(exist_ok=True)
    return define(RunSpec(**values), Origin(here), staging, frozenset())


def test_rows_in_memory_become_a_hashed_file(here: Path) -> None:
    one = defined(here, dataset=[{"prompt": "a", "answer": "b"}])
    two = defined(here, dataset=[{"prompt": "a", "answer": "b"}])
    assert isinstance(one.run.dataset, FileDataset)
    assert one.run.dataset == two.run.dataset
    content = one.files[one.run.dataset.path]
    assert isinstance(content, Path)
    assert json.loads(content.read_text()) == {"prompt": "a", "answer": "b"}


def test_settings_of_rows_and_of_every_evaluation_are_kept(here: Path) -> None:
    rows = RowsDataset.of(["x"], system_prompt="be brief")
    definition = defined(
        here,
        dataset=rows,
        eval_dataset=["y"],
        evals=[{"name": "other", "dataset": ["z"], "samples": 3}],
    )
    assert definition.run.dataset is not None
    assert definition.run.dataset.system_prompt == "be brief"
    kinds = [evaluation.dataset.kind for evaluation in definition.run.evaluations]
    assert kinds == ["file", "file"]
    assert definition.run.evals[0].samples == 3
    assert len([name for name in definition.files if name.startswith("data/rows-")]) == 3


def test_a_data_file_travels_in_its_place_with_its_hash(here: Path) -> None:
    definition = defined(here, dataset=FileDataset(path="tasks.jsonl"))
    assert isinstance(definition.run.dataset, FileDataset)
    assert definition.run.dataset.path == "tasks.jsonl"
    assert definition.run.dataset.sha256 is not None
    assert definition.files["tasks.jsonl"] == here / "tasks.jsonl"


def test_a_data_file_from_elsewhere_travels_apart(here: Path) -> None:
    (here.parent / "outside.csv").write_text("prompt\nx\n")
    definition = defined(here, dataset="../outside.csv")
    assert isinstance(definition.run.dataset, FileDataset)
    path = definition.run.dataset.path
    assert path.startswith("data/")
    assert definition.files[path] == here.parent / "outside.csv"


def test_a_large_data_file_stays_and_is_named_by_path_and_hash(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(define_module, "LARGE_FILE_BYTES", 3)
    definition = defined(here, dataset="tasks.jsonl")
    assert isinstance(definition.run.dataset, FileDataset)
    assert definition.run.dataset.path == str(here / "tasks.jsonl")
    assert definition.run.dataset.sha256 is not None
    assert "tasks.jsonl" not in definition.files


def test_a_missing_data_file_is_two_lines(here: Path) -> None:
    with pytest.raises(DataError) as refused:
        defined(here, dataset="nothing.jsonl")
    assert str(here / "nothing.jsonl") in refused.value.message
    assert "relative to the file that defines the run" in refused.value.fix


def test_local_folders_become_absolute_and_names_stay(here: Path) -> None:
    (here / "model").mkdir()
    (here / "hub-copy").mkdir()
    definition = defined(
        here, model="model", dataset="hub-copy", resume_from_checkpoint="runs/x/checkpoints/3"
    )
    assert definition.run.model == str(here / "model")
    assert definition.run.dataset == HuggingFaceDataset(path=str(here / "hub-copy"))
    assert definition.run.resume_from_checkpoint == str(here / "runs/x/checkpoints/3")
    assert defined(here, model="smollm2-135m").run.model == "smollm2-135m"
    assert defined(here, model="owner/model", dataset="owner/data").run.model == "owner/model"


def test_a_catalogue_name_wins_over_a_folder_of_that_name(here: Path) -> None:
    (here / "smollm2-135m").mkdir()
    assert defined(here).run.model == "smollm2-135m"


def test_all_code_of_a_definition_is_found(here: Path) -> None:
    definition = defined(
        here,
        reward=weighted(good=("own_rewards:good", 1.0), brief=("own_rewards:brief", 0.1)),
        environment="own_rewards:Env",
        evals=[{"name": "e", "dataset": ["y"], "reward": "own_rewards:brief"}],
    )
    refs = [code.ref for code in codes_in(definition.run)]
    assert refs == ["own_rewards:Env", "own_rewards:good", "own_rewards:brief", "own_rewards:brief"]
    assert definition.files["own_rewards.py"] == here / "own_rewards.py"


def test_what_is_set_is_still_known_after_all_changes(here: Path) -> None:
    definition = defined(here, recipe={"num_steps": 3})
    assert definition.origins["recipe.num_steps"] == "user"
    assert definition.origins["reward.ref"] == "user"
    assert definition.origins["reward.kwargs"] == "default"
    assert definition.origins["evals"] == "default"


def test_where_rows_in_memory_lie_is_not_the_users_choice(here: Path) -> None:
    (here / "own.jsonl").write_text('{"prompt": "a"}\n')
    definition = defined(here, dataset="own.jsonl", evals=[{"name": "e", "dataset": ["y"]}])
    assert definition.origins["dataset.path"] == "user"
    assert definition.origins["dataset.sha256"] == "planner"
    assert definition.origins["evals.0.dataset.path"] == "planner"
    assert definition.origins["evals.0.dataset.sha256"] == "planner"
