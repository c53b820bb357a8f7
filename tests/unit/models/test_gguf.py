from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from training_gym.models.architecture import read
from training_gym.models.catalogue import resolve
from training_gym.models.gguf_header import GgufHeader, read_header
from training_gym.models.weights import load_codec, load_model
from training_gym.models.weights.gguf import convert_by_transformers, convert_directly
from training_gym.models.weights.gguf_tokenizer import tokenizer_from
from training_gym.spec.errors import ModelError
from training_gym.spec.messages import user
from training_gym.testing.tiny import tiny_model


def test_a_converted_file_is_the_model_it_was_made_from(tiny_qwen2: Path, tiny_gguf: Path) -> None:
    folder = resolve(str(tiny_gguf))
    one = load_model(tiny_qwen2, dtype="float32", device="cpu")
    two = load_model(folder, dtype="float32", device="cpu")
    ids = torch.arange(40)[None]
    assert torch.equal(one(ids).logits, two(ids).logits)
    assert (folder / "chat_template.jinja").read_text() == (
        tiny_qwen2 / "chat_template.jinja"
    ).read_text()
    text = load_codec(tiny_qwen2).render([user("Grüße 123")])
    assert load_codec(folder).encode(text) == load_codec(tiny_qwen2).encode(text)
    assert load_codec(folder).stop_ids == load_codec(tiny_qwen2).stop_ids


DIRECT, BY_TRANSFORMERS = convert_directly, convert_by_transformers


@pytest.mark.parametrize(
    ("family", "ways"),
    [
        ("llama", [DIRECT, BY_TRANSFORMERS]),
        ("qwen2", [DIRECT, BY_TRANSFORMERS]),
        ("qwen3", [DIRECT]),  # transformers overlooks the width of its heads
        ("gemma3_text", [DIRECT, BY_TRANSFORMERS]),
    ],
)
def test_every_way_of_converting_gives_the_model_back(
    family: str, ways: list[Any], gguf_writer: Callable[..., Path], tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    source = tiny_model(tmp_path / "source", family, tied=family != "qwen3", seed=2)
    file = gguf_writer(tmp_path / "file.gguf", source=source)
    header = read_header(file)
    original = load_file(source / "model.safetensors")
    for convert in ways:
        folder = tmp_path / convert.__name__
        folder.mkdir()
        convert(file, header, folder)
        found = load_file(folder / "model.safetensors")
        assert found.keys() == original.keys()
        for name, tensor in original.items():
            torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-7)
    written = json.loads((source / "config.json").read_text())
    config = json.loads((tmp_path / "convert_directly" / "config.json").read_text())
    assert config.pop("rms_norm_eps") == pytest.approx(written.pop("rms_norm_eps"))  # float32 there
    assert config == written


def test_a_file_that_lacks_a_tensor_is_refused(tiny_gguf: Path, tmp_path: Path) -> None:
    data = tiny_gguf.read_bytes().replace(b"blk.1.ffn_up.weight", b"blk.0.ffn_up.weight")
    (tmp_path / "lacks.gguf").write_bytes(data)
    with pytest.raises(ModelError, match=r"lacks 1 weights .* model\.layers\.1\.mlp\.up_proj"):
        resolve(str(tmp_path / "lacks.gguf"))


def test_a_file_is_converted_once_and_found_by_its_content(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = resolve(str(tiny_gguf))
    moved = tmp_path / tiny_gguf.name
    moved.write_bytes(tiny_gguf.read_bytes())
    monkeypatch.setattr("training_gym.models.conversion.convert", None)
    assert resolve(str(moved)) == folder
    source = json.loads((folder / "source.json").read_text())
    assert source["origin"]["kind"] == "gguf"
    assert set(source["files"]) >= {"config.json", "model.safetensors", "tokenizer.json"}


def test_architecture_of_a_file_equals_that_of_its_folder(
    tiny_qwen2: Path, tiny_gguf: Path
) -> None:
    assert read(tiny_gguf) == read(tiny_qwen2)


def test_encoder_files_are_refused(tmp_path: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "bert.gguf", "bert")
    writer.add_block_count(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelError, match="is a bert model: no causal language model"):
        read(tmp_path / "bert.gguf")


@pytest.mark.parametrize("kept", [0, 3, 20, 200, 0.5, 0.999])
def test_a_file_cut_anywhere_is_refused(tiny_gguf: Path, tmp_path: Path, kept: float) -> None:
    data = tiny_gguf.read_bytes()
    short = tmp_path / "short.gguf"
    short.write_bytes(data[: int(kept if kept >= 1 or kept == 0 else kept * len(data))])
    with pytest.raises(ModelError) as caught:
        resolve(str(short))
    assert "short.gguf" in caught.value.message
    assert caught.value.fix == "download the file again"


@pytest.mark.parametrize(
    ("offset", "value", "says"),
    [
        (0, b"GGML", "does not begin with 'GGUF'"),
        (4, struct.pack("<I", 9), "version 9"),
        (8, struct.pack("<Q", 1 << 60), "a count of"),
        (24, struct.pack("<Q", 1 << 50), "a count of"),
    ],
)
def test_a_damaged_header_is_refused(
    tiny_gguf: Path, tmp_path: Path, offset: int, value: bytes, says: str
) -> None:
    data = bytearray(tiny_gguf.read_bytes())
    data[offset : offset + len(value)] = value
    (tmp_path / "bad.gguf").write_bytes(bytes(data))
    with pytest.raises(ModelError, match=says):
        resolve(str(tmp_path / "bad.gguf"))


def test_weights_that_are_no_numbers_are_refused(tiny_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "nan.gguf").write_bytes(
        tiny_gguf.read_bytes()[:-4] + struct.pack("<f", float("nan"))
    )
    with pytest.raises(ModelError, match="holds values that are no numbers"):
        resolve(str(tmp_path / "nan.gguf"))
    left = (tmp_path / "home" / "models").glob("*nan*")
    assert not [path for path in left if path.is_dir()]


def test_what_the_conversion_would_lose_is_refused(
    gguf_writer: Callable[..., Path], tmp_path: Path
) -> None:
    scaled = gguf_writer(tmp_path / "yarn.gguf", qwen2__rope__scaling__type="yarn")
    with pytest.raises(ModelError, match="scales its rotary positions"):
        resolve(str(scaled))
    unknown = gguf_writer(tmp_path / "pre.gguf", pre="smolm")
    with pytest.raises(ModelError, match=r"splits text as 'smolm'") as caught:
        resolve(str(unknown))
    assert "did you mean 'smollm'?" in caught.value.fix


def header_with(pre: str, pieces: list[str], merges: list[str]) -> GgufHeader:
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return GgufHeader(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": [*alphabet, *pieces],
            "tokenizer.ggml.merges": merges,
        },
        (),
    )


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "in 1234x", ["i", "n", "Ġ", "1", "2", "3", "4", "x"]),
        ("smollm", "½²", ["Â", "½", "Â", "²"]),
        ("gpt-2", "in 1234x", ["i", "n", "Ġ", "12", "34", "x"]),
        ("qwen2", "in 1234x", ["i", "n", "Ġ", "1", "2", "3", "4", "x"]),
        ("llama-bpe", "1234", ["12", "3", "4"]),
    ],
)
def test_digits_are_split_as_the_file_says(pre: str, text: str, pieces: list[str]) -> None:
    tokenizer = tokenizer_from(header_with(pre, ["12", "34"], ["1 2", "3 4"]))
    assert tokenizer.encode(text).tokens == pieces
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def sentencepiece_header(**more: object) -> GgufHeader:
    pieces = ["<unk>", "<s>", "</s>", "  ", "▁", "a", "b", "ab", "ba", "▁a"]
    kinds = [2, 3, 3, 4, 1, 1, 1, 1, 1, 1]
    for byte in range(256):
        pieces.append(f"<0x{byte:02X}>")
        kinds.append(6)
    return GgufHeader(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": pieces,
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.ggml.scores": [0.0] * 5 + [-9.0, -9.0, -1.0, -2.0, -0.5] + [0.0] * 256,
            "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.add_space_prefix": False,
            **more,
        },
        (),
    )


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (" ab", ["▁a", "b"]),  # best score first: ▁a (-0.5) before ab (-1)
        ("ab", ["ab"]),
        ("a  b", ["a", "▁▁", "b"]),  # a run of spaces is found whole, as the vocabulary has it
        ("aé", ["a", "<0xC3>", "<0xA9>"]),
        ("<s>a", ["<s>", "a"]),
    ],
)
def test_sentencepiece_vocabularies_join_as_sentencepiece_does(
    text: str, pieces: list[str]
) -> None:
    tokenizer = tokenizer_from(sentencepiece_header())
    encoded = tokenizer.encode(text, add_special_tokens=False)
    assert encoded.tokens == pieces
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(("wanted", "first"), [({}, [1]), ({"add_bos_token": False}, [])])
def test_the_begin_token_is_added_where_the_file_wants_it(
    wanted: dict[str, bool], first: list[int]
) -> None:
    keys = {f"tokenizer.ggml.{name}": value for name, value in wanted.items()}
    assert tokenizer_from(sentencepiece_header(**keys)).encode("b").ids == [*first, 6]


def test_numbers_of_every_width_are_read(tmp_path: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "numbers.gguf", "llama")
    writer.add_uint8("a", 200)
    writer.add_int16("b", -5)
    writer.add_uint64("c", 1 << 40)
    writer.add_float32("d", 0.5)
    writer.add_bool("e", True)
    writer.add_array("f", [1, 2, 3])
    writer.add_array("g", ["x", "ü"])
    writer.add_array("h", [True, False])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    values = read_header(tmp_path / "numbers.gguf").metadata
    assert [values[key] for key in "abcdefgh"] == [
        *(200, -5, 1 << 40, 0.5, True, [1, 2, 3]),
        *(["x", "ü"], [True, False]),
    ]
