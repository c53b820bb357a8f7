from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from training_gym.engines.local.network import Network
from training_gym.models.architecture import read
from training_gym.models.base_weights import recorded_base, weights_sha256
from training_gym.models.weights import load_model, merge_adapter, save_model
from training_gym.models.weights.quiet import quiet
from training_gym.models.weights.tiny import FAMILIES
from training_gym.spec.errors import ModelError
from training_gym.spec.recipe import Lora
from training_gym.testing.tiny import tiny_model

IDS = torch.arange(40)[None]


def load(folder: Path, **options: Any) -> Any:
    return load_model(folder, dtype="float32", device="cpu", **options)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


def copied(folder: Path, place: Path) -> Path:
    return Path(shutil.copytree(folder, place / "copy"))


def nudge(model: Any) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_gives_equal_bits(family: str, tmp_path: Path) -> None:
    tied = FAMILIES.index(family) % 2 == 0
    source = tiny_model(tmp_path / "source", family, tied=tied, seed=3)
    model = load(source)
    nudge(model)
    assert save_model(model, source, tmp_path / "saved") == "full"
    assert torch.equal(logits(load(tmp_path / "saved")), logits(model))


def test_tiny_models_are_the_same_bits_every_time(tmp_path: Path, tiny_llama: Path) -> None:
    again = tiny_model(tmp_path / "again")
    other = tiny_model(tmp_path / "other", seed=1)
    weights = (tiny_llama / "model.safetensors").read_bytes()
    assert (again / "model.safetensors").read_bytes() == weights
    assert (other / "model.safetensors").read_bytes() != weights


def test_tied_embeddings_are_written_once(tiny_llama: Path, tmp_path: Path) -> None:
    from safetensors import safe_open

    save_model(load(tiny_llama), tiny_llama, tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        names = set(file.keys())
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names


def test_tokenizer_and_template_are_copied_byte_for_byte(tiny_llama: Path, tmp_path: Path) -> None:
    source = copied(tiny_llama, tmp_path)
    template = "{# kept #}\r\n" + (source / "chat_template.jinja").read_text()
    (source / "chat_template.jinja").write_bytes(template.encode())
    odd = '{"eos_token_id": [258, 256], "do_sample": false, "temperature": 0.6}'
    (source / "generation_config.json").write_text(odd)
    save_model(load(source), source, tmp_path / "saved")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / "saved" / name).read_bytes() == (source / name).read_bytes()
    assert (tmp_path / "saved" / "generation_config.json").read_text() == odd


def test_weights_are_held_in_the_type_asked_for(tiny_llama: Path) -> None:
    assert load_model(tiny_llama, dtype="bfloat16", device="cpu").dtype == torch.bfloat16
    with pytest.raises(ModelError, match="cannot be held as 'int8'"):
        load_model(tiny_llama, dtype="int8", device="cpu")


def test_nothing_is_printed(
    tiny_llama: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = load(tiny_llama, adapter=Lora(rank=2))
    save_model(model, tiny_llama, tmp_path, merge=True)
    assert capfd.readouterr() == ("", "")


def test_an_adapter_starts_as_the_base_and_trains_only_itself(tiny_llama: Path) -> None:
    base, adapted = load(tiny_llama), load(tiny_llama, adapter=Lora(rank=4))
    assert torch.equal(logits(base), logits(adapted))
    trainable = {name for name, p in adapted.named_parameters() if p.requires_grad}
    assert trainable
    assert all("lora_" in name for name in trainable)
    assert any("gate_proj" in name for name in trainable)
    assert not any("lm_head" in name for name in trainable)


def test_an_adapters_first_values_depend_on_its_seed_only(tiny_llama: Path) -> None:
    def first(seed: int) -> torch.Tensor:
        state = load(tiny_llama, adapter=Lora(rank=2), seed=seed).state_dict()
        return next(value for name, value in state.items() if "lora_A" in name)

    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = first(0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert torch.equal(first(0), one)
    assert not torch.equal(first(1), one)


def test_target_modules_choose_the_layers(tiny_llama: Path) -> None:
    model = load(tiny_llama, adapter=Lora(rank=2, target_modules=("q_proj", "v_proj")))
    names = {n.split(".lora_")[0].rsplit(".", 1)[-1] for n in model.state_dict() if ".lora_" in n}
    assert names == {"q_proj", "v_proj"}
    with pytest.raises(ModelError, match="no layers of llama are called nothing_proj"):
        load(tiny_llama, adapter=Lora(target_modules=("nothing_proj",)))


def test_an_adapter_is_saved_alone_and_comes_back_trainable(
    tiny_llama: Path, tmp_path: Path
) -> None:
    model = load(tiny_llama, adapter=Lora(rank=4))
    nudge(model)
    assert save_model(model, tiny_llama, tmp_path) == "adapter"
    assert not (tmp_path / "model.safetensors").exists()
    assert (tmp_path / "tokenizer.json").is_file()
    again = load(tmp_path, adapter=Lora(rank=4))
    assert torch.equal(logits(again), logits(model))
    assert any(parameter.requires_grad for parameter in again.parameters())
    save_model(again, tmp_path, tmp_path / "second")
    assert torch.equal(logits(load(tmp_path / "second")), logits(model))


def test_another_adapter_than_the_saved_one_is_refused(tiny_llama: Path, tmp_path: Path) -> None:
    save_model(load(tiny_llama, adapter=Lora(rank=4)), tiny_llama, tmp_path)
    with pytest.raises(ModelError, match="has rank 4, 8 is asked for"):
        load(tmp_path, adapter=Lora(rank=8))


def test_merging_adds_the_adapter_and_leaves_the_model_alone(
    tiny_llama: Path, tmp_path: Path
) -> None:
    model = load(tiny_llama, adapter=Lora(rank=4))
    nudge(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert save_model(model, tiny_llama, tmp_path, merge=True) == "full"
    merged = load(tmp_path)
    torch.testing.assert_close(logits(merged), logits(model), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(logits(merged), logits(load(tiny_llama)), atol=1e-2)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def break_cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def break_header(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(b"\xff" * 64 + file.read_bytes()[64:])


def break_emptied(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def break_json(folder: Path) -> None:
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[8] = ord("[")
    file.write_bytes(bytes(data))


def break_missing(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def break_shard(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (break_cut, r"model\.safetensors is damaged: .* bytes where its header promises"),
        (break_header, r"model\.safetensors is damaged: it does not begin with"),
        (break_emptied, r"model\.safetensors is damaged: it does not begin with"),
        (break_json, r"model\.safetensors is damaged: its header is unreadable"),
        (break_missing, r"has no model\.safetensors"),
        (break_shard, r"model-00001-of-00002\.safetensors is missing"),
    ],
)
def test_damaged_weights_are_named(tiny_llama: Path, tmp_path: Path, harm: Any, says: str) -> None:
    folder = copied(tiny_llama, tmp_path)
    harm(folder)
    with pytest.raises(ModelError, match=says) as caught:
        load(folder)
    assert len(str(caught.value).splitlines()) == 2


def test_weights_that_lack_a_tensor_are_refused(tiny_llama: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = copied(tiny_llama, tmp_path)
    state = load_file(folder / "model.safetensors")
    del state["model.layers.1.mlp.up_proj.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 weights, the first is .*mlp\.up_proj\.weight"):
        load(folder)


def changed_config(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def test_sizes_that_do_not_belong_to_the_weights_are_refused(
    tiny_llama: Path, tmp_path: Path
) -> None:
    folder = copied(tiny_llama, tmp_path)
    changed_config(folder, intermediate_size=96)
    with pytest.raises(ModelError, match="cannot be loaded"):
        load(folder)


def test_an_unknown_architecture_is_refused(tiny_llama: Path, tmp_path: Path) -> None:
    folder = copied(tiny_llama, tmp_path)
    changed_config(folder, model_type="fromtomorrow", architectures=["FromTomorrowForCausalLM"])
    with pytest.raises(ModelError, match="fromtomorrow") as caught:
        load(folder)
    assert "newer transformers" in caught.value.fix


def test_what_is_no_causal_model_is_refused(tiny_llama: Path, tmp_path: Path) -> None:
    folder = copied(tiny_llama, tmp_path)
    changed_config(folder, architectures=["LlamaForSequenceClassification"])
    with pytest.raises(ModelError, match="no causal language model"):
        load(folder)


def test_quantised_weights_are_refused(tiny_llama: Path, tmp_path: Path) -> None:
    folder = copied(tiny_llama, tmp_path)
    changed_config(folder, quantization_config={"quant_method": "fp8"})
    with pytest.raises(ModelError, match=r"quantised \(fp8\)"):
        load(folder)


def test_an_adapter_is_loaded_by_peft_itself(tiny_llama: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    model = load(tiny_llama, adapter=Lora(rank=4))
    nudge(model)
    save_model(model, tiny_llama, tmp_path)
    with quiet():
        theirs = PeftModel.from_pretrained(load(tiny_llama), tmp_path)
    assert torch.equal(logits(theirs), logits(model))


def test_an_adapter_knows_the_weights_it_belongs_to(tiny_llama: Path, tmp_path: Path) -> None:
    base = copied(tiny_llama, tmp_path)
    adapter = tmp_path / "adapter"
    save_model(load(base, adapter=Lora(rank=2)), base, adapter)
    assert recorded_base(adapter) == weights_sha256(base)
    assert recorded_base(adapter) == weights_sha256(tiny_llama)  # wherever the folder lies
    load(adapter)
    trained = load(base)
    nudge(trained)
    save_model(trained, base, tmp_path / "trained")
    shutil.copy(tmp_path / "trained" / "model.safetensors", base)
    with pytest.raises(ModelError, match="was trained over other weights than those in") as caught:
        load(adapter)
    assert "put the base model back" in caught.value.fix


def test_an_adapter_from_elsewhere_names_no_weights(tiny_llama: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_model(load(tiny_llama, adapter=Lora(rank=2)), tiny_llama, tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    save_file(load_file(file), file, metadata={"format": "pt"})
    assert recorded_base(tmp_path) is None
    load(tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_merging_a_folder_gives_a_model_of_the_bases_type(
    tiny_llama: Path, tmp_path: Path, dtype: str
) -> None:
    base = tmp_path / "base"
    save_model(load_model(tiny_llama, dtype=dtype, device="cpu"), tiny_llama, base)
    model = load_model(base, dtype="float32", device="cpu", adapter=Lora(rank=4))
    nudge(model)
    save_model(model, base, tmp_path / "adapter")
    (tmp_path / "adapter" / "chat_template.jinja").write_text("its own")
    merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    merged = load(tmp_path / "merged")
    config = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert config["dtype"] == dtype
    assert (tmp_path / "merged" / "chat_template.jinja").read_text() == "its own"
    tolerance = 1e-4 if dtype == "float32" else 0.2
    torch.testing.assert_close(logits(merged), logits(model), rtol=0.0, atol=tolerance)
    with pytest.raises(ModelError, match="holds no adapter"):
        merge_adapter(tmp_path / "merged", tmp_path / "again")


def test_experts_are_adapted_by_their_old_names_and_merged(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "source", "qwen3_moe")
    names = ("q_proj", "gate_proj", "up_proj", "down_proj")
    model = load(source, adapter=Lora(rank=2, target_modules=names))
    nudge(model)
    assert any("experts" in name for name, p in model.named_parameters() if p.requires_grad)
    save_model(model, source, tmp_path / "adapter")
    torch.testing.assert_close(logits(load(tmp_path / "adapter")), logits(model))
    save_model(model, source, tmp_path / "merged", merge=True)
    torch.testing.assert_close(logits(load(tmp_path / "merged")), logits(model), atol=1e-4, rtol=0)


SEES = {
    "qwen3_5": ("qwen3_5_text", {"depth": 1, "num_heads": 2, "out_hidden_size": 64}),
    "gemma3": ("gemma3_text", {"num_hidden_layers": 1, "num_attention_heads": 2}),
    "gemma4": ("gemma4_text", {"num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8}),
}


@pytest.mark.parametrize("family", SEES)
def test_the_text_part_of_models_that_see_is_trained(family: str, tmp_path: Path) -> None:
    source = seeing_model(family, tmp_path / "source")
    text = tiny_model(tmp_path / "text", SEES[family][0])
    assert read(source).adapted_widths == read(text).adapted_widths
    model = load(source, adapter=Lora(rank=1))
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert trained == read(text).adapted_widths
    nudge(model)
    save_model(model, source, tmp_path / "saved", merge=True)
    torch.testing.assert_close(logits(load(tmp_path / "saved")), logits(model), atol=1e-4, rtol=0)
    assert Network(model).check_parity() < 1e-5


def seeing_model(family: str, folder: Path) -> Path:
    from transformers import AutoConfig, AutoModelForImageTextToText

    text, vision = SEES[family]
    config = json.loads((tiny_model(folder, text) / "config.json").read_text())
    small = {"hidden_size": 16, "intermediate_size": 16}
    whole = AutoConfig.for_model(
        family, text_config=config, vision_config=small | vision, tie_word_embeddings=True
    )
    with quiet():
        AutoModelForImageTextToText.from_config(whole).save_pretrained(folder)
    return folder
