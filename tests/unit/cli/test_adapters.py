import json

import pytest

from training_gym.models.architecture import read
from training_gym.models.weights import load_model, save_model
from training_gym.models.weights.tiny import tiny_model
from training_gym.spec.recipe import Lora


@pytest.fixture
def base(tmp_path):
    return tiny_model(tmp_path / "base")


@pytest.fixture
def adapter(base, tmp_path):
    model = load_model(base, dtype="float32", device="cpu", adapter=Lora(rank=2))
    save_model(model, base, tmp_path / "adapter")
    return tmp_path / "adapter"


def test_an_adapter_is_merged_into_a_model(command, base, adapter, tmp_path):
    answer = command("models", "merge", adapter, tmp_path / "merged", "--json")
    (found,) = answer.objects
    assert found["path"] == str(tmp_path / "merged")
    assert read(tmp_path / "merged") == read(base)
    moved = base.rename(tmp_path / "elsewhere")
    assert command("models", "merge", adapter, tmp_path / "no").code != 0
    answer = command("models", "merge", adapter, tmp_path / "again", "--base", moved)
    assert answer.out.strip() == str(tmp_path / "again")


def test_an_adapter_is_exported_alone(command, adapter, tmp_path):
    (adapter / "resume").mkdir()
    answer = command("models", "export", adapter, tmp_path / "copy", "--base", "some/model")
    assert answer.out.strip() == str(tmp_path / "copy")
    config = json.loads((tmp_path / "copy" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "some/model"
    for name in ("adapter_model.safetensors", "tokenizer.json", "chat_template.jinja"):
        assert (tmp_path / "copy" / name).read_bytes() == (adapter / name).read_bytes()
    assert not (tmp_path / "copy" / "resume").exists()
    answer = command("models", "export", adapter, tmp_path / "copy", "--json")
    assert "is there already" in answer.objects[-1]["error"]["message"]


def test_what_is_no_adapter_is_refused(command, base, tmp_path):
    for verb in ("merge", "export"):
        answer = command("models", verb, base, tmp_path / verb)
        assert "holds no adapter" in answer.err
        assert not (tmp_path / verb).exists()
