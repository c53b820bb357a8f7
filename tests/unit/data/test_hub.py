import json
import sys

import pytest

from training_gym.data import load
from training_gym.spec.datasets import HuggingFaceDataset
from training_gym.spec.errors import DataError

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def _offline(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "quiz").mkdir()
    rows = [{"prompt": f"q{n}", "answer": str(n)} for n in range(3)]
    (tmp_path / "quiz" / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return tmp_path


def refusal(root, **settings) -> str:
    with pytest.raises(DataError) as caught:
        load(HuggingFaceDataset(**settings), seed=0, root=root)
    assert len(str(caught.value).splitlines()) == 2
    return str(caught.value)


def test_a_local_folder_is_read_relative_to_the_root(folder):
    found = load(HuggingFaceDataset(path="quiz", shuffle=False), seed=0, root=folder)
    assert [(t.prompt_text, t.answer) for t in found.tasks] == [
        ("q0", "0"),
        ("q1", "1"),
        ("q2", "2"),
    ]
    assert found == load(HuggingFaceDataset(path="quiz", shuffle=False), seed=0, root=folder)


def test_what_save_to_disk_wrote_is_read(tmp_path):
    table = datasets.Dataset.from_list([{"prompt": "a"}])
    table.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict(test=table).save_to_disk(str(tmp_path / "many"))
    assert load(HuggingFaceDataset(path="one"), seed=0, root=tmp_path).tasks[0].prompt_text == "a"
    many = HuggingFaceDataset(path="many", split="test")
    assert load(many, seed=0, root=tmp_path).tasks[0].prompt_text == "a"
    assert "did you mean 'test'?" in refusal(tmp_path, path="many", split="tset")


def test_unknown_split_config_and_column_say_what_is_there(folder):
    assert "has no split 'trian'\ndid you mean 'train'?" in refusal(
        folder, path="quiz", split="trian"
    )
    assert "has no config 'main'\nknown: default" in refusal(folder, path="quiz", config="main")
    assert "quiz (train), row 1 has no column 'promt'" in refusal(
        folder, path="quiz", input_column="promt"
    )
    (folder / "empty").mkdir()
    assert "there is no dataset 'empty'" in refusal(folder, path="empty")


def test_offline_is_said_so(tmp_path):
    assert "HF_HUB_OFFLINE forbids a download" in refusal(tmp_path, path="owner/name")


def test_an_unreachable_hub_is_said_so(tmp_path, monkeypatch):
    def unreachable(*_args, **_settings):
        raise ConnectionError("Couldn't reach 'owner/name' on the Hub (LocalEntryNotFoundError)")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    assert "cannot be reached" in refusal(tmp_path, path="owner/name")


def test_a_missing_library_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'training-gym[data]'" in refusal(tmp_path, path="owner/name")
