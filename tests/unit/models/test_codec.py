from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from training_gym.models.weights import load_codec
from training_gym.models.weights.template_messages import as_template_message
from training_gym.spec.errors import ModelError
from training_gym.spec.messages import (
    MediaPart,
    Message,
    TextPart,
    ToolCall,
    ToolSpec,
    assistant,
    system,
    user,
)
from training_gym.spec.text import TextCodec
from training_gym.testing.tiny import tiny_model


@pytest.fixture
def folder(tiny_llama: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


@pytest.fixture(scope="module")
def codec(tiny_llama: Path) -> TextCodec:
    return load_codec(tiny_llama)


def edit(file: Path, **values: Any) -> None:
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | values))


@pytest.mark.parametrize(
    "text",
    ["", "hello", "  two  spaces ", "a\n\n\tb\r\n", "Grüße 日本 😀", "don 't , ok .", "\x00"],
)
def test_every_text_comes_back(codec: TextCodec, text: str) -> None:
    ids = codec.encode(text)
    assert len(ids) == len(text.encode())
    assert codec.decode(ids) == text
    assert codec.decode_visible(ids) == text


def test_special_tokens_are_recognised_and_hidden(codec: TextCodec) -> None:
    ids = codec.encode("<|im_start|>hi<|im_end|>")
    assert len(ids) == 4
    assert codec.decode(ids) == "<|im_start|>hi<|im_end|>"
    assert codec.decode_visible(ids) == "hi"


def test_a_conversation_is_rendered_by_the_models_template(codec: TextCodec) -> None:
    asked = [system("Be brief."), user("Hi")]
    text = codec.render(asked)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    answered = codec.render([*asked, assistant("Hello")], add_generation_prompt=False)
    assert answered == text + "Hello<|im_end|>\n"


def test_tools_reasoning_and_calls_reach_the_template(codec: TextCodec) -> None:
    call = ToolCall(id="c1", name="add", arguments='{"a": 1}')
    thought = Message(role="assistant", reasoning="easy", tool_calls=(call,))
    reply = Message(role="tool", content="2", tool_call_id="c1", name="add")
    text = codec.render([user("1+1"), thought, reply], tools=[ToolSpec(name="add")])
    assert '"name": "add", "description": ""' in text
    assert "<think>easy</think>" in text
    assert '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>' in text
    assert "<|im_start|>tool\n2<|im_end|>" in text


def test_arguments_stay_as_written_where_the_template_takes_text(folder: Path) -> None:
    template = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{% if c.function.arguments is string %}{{ c.function.arguments }}{% endif %}"
        "{% endfor %}{% endfor %}"
    )
    (folder / "chat_template.jinja").write_text(template)
    call = ToolCall(id="c", name="f", arguments='{ "a":1}')
    message = Message(role="assistant", tool_calls=(call,))
    assert load_codec(folder).render([message]) == '{ "a":1}'


@pytest.mark.parametrize("written", ["not json", "[1]", '"text"'])
def test_arguments_that_are_no_object_stay_text(written: str) -> None:
    call = ToolCall(id="c", name="f", arguments=written)
    message = Message(role="assistant", tool_calls=(call,))
    found = as_template_message(message, literal_arguments=False)
    assert found["tool_calls"][0]["function"]["arguments"] == written


def test_text_parts_are_joined_and_media_refused(codec: TextCodec) -> None:
    parts = (TextPart(text="a"), TextPart(text="b"))
    assert "user\nab<|im_end|>" in codec.render([Message(role="user", content=parts)])
    picture = MediaPart(type="image", sha256="0" * 64)
    with pytest.raises(ModelError, match="a user message holds image"):
        codec.render([Message(role="user", content=(picture,))])


def test_a_base_model_completes_texts_and_refuses_chat(tmp_path: Path) -> None:
    codec = load_codec(tiny_model(tmp_path / "base", chat_template=False))
    assert not codec.has_chat_template
    assert codec.encode("ab") == load_codec(tmp_path / "base").encode("ab")
    with pytest.raises(ModelError, match="base has no chat template") as caught:
        codec.render([user("hi")])
    assert "plain texts to complete" in caught.value.fix


def test_a_template_without_tools_refuses_them(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    with pytest.raises(ModelError, match="takes no tools"):
        load_codec(folder).render([user("hi")], tools=[ToolSpec(name="f")])


def test_a_template_that_refuses_says_so_in_two_lines(folder: Path) -> None:
    refusal = "{{ raise_exception('System role not supported') }}"
    (folder / "chat_template.jinja").write_text(refusal)
    with pytest.raises(ModelError, match="System role not supported") as caught:
        load_codec(folder).render([system("hi")])
    assert len(str(caught.value).splitlines()) == 2


def test_stop_tokens_come_from_every_file_and_the_template(folder: Path) -> None:
    assert load_codec(folder).stop_ids == {258}
    edit(folder / "generation_config.json", eos_token_id=[256, 258])
    assert load_codec(folder).stop_ids == {256, 258}
    for name in ("generation_config.json", "config.json"):
        edit(folder / name, eos_token_id=None)
    edit(folder / "tokenizer_config.json", eos_token="<|endoftext|>")
    assert load_codec(folder).stop_ids == {256, 258}  # 258: the template ends a turn with it
    (folder / "chat_template.jinja").unlink()
    assert load_codec(folder).stop_ids == {256}


def test_padding_avoids_stop_tokens(folder: Path) -> None:
    assert load_codec(folder).pad_id == 256
    edit(folder / "tokenizer_config.json", pad_token="<|im_end|>")
    codec = load_codec(folder)
    assert codec.stop_ids == {258}
    assert codec.pad_id == 256
    edit(folder / "tokenizer_config.json", pad_token=None)
    assert load_codec(folder).pad_id == 256


def test_begin_is_what_the_tokenizer_adds(folder: Path) -> None:
    assert load_codec(folder).begin() == ()
    edit(
        folder / "tokenizer.json",
        post_processor={
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}},
            ],
            "pair": [],
            "special_tokens": {
                name: {"id": name, "ids": [index], "tokens": [name]}
                for name, index in (("<|endoftext|>", 256), ("<|im_end|>", 258))
            },
        },
    )
    codec = load_codec(folder)
    assert codec.begin() == (256,)
    assert codec.encode("a") == load_codec(folder).encode("a")
    assert len(codec.encode("a")) == 1


def test_truncation_and_padding_in_the_file_are_ignored(folder: Path) -> None:
    edit(
        folder / "tokenizer.json",
        truncation={"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        padding={
            "strategy": {"Fixed": 8},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 256,
            "pad_type_id": 0,
            "pad_token": "<|endoftext|>",
        },
    )
    assert len(load_codec(folder).encode("abcdefgh")) == 8
    assert len(load_codec(folder).encode("ab")) == 2


def test_a_lone_surrogate_is_refused(codec: TextCodec) -> None:
    with pytest.raises(ModelError, match="cannot be encoded"):
        codec.encode("a\ud800b")


@pytest.mark.parametrize("content", ["", "{", '{"model": {"type": "Nothing"}}'])
def test_a_damaged_tokenizer_is_named(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        load_codec(folder)


def test_a_missing_tokenizer_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        load_codec(folder)
