"""What models write that is no clean call: it is kept as written, and never mended."""

import json

import pytest
from tests.unit.models.chat_templates import TEMPLATES

from training_gym.models.parsers.families import FAMILIES, family_of
from training_gym.spec.messages import ToolSpec

ADD = ToolSpec(
    name="add",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "t": {"type": "string"}},
    },
)
BY_NAME = {family.name: family for family in FAMILIES}


def read(family, text, after="", tools=(ADD,)):
    return BY_NAME[family].read(text, after, tools)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_a_template_tells_its_family(template):
    assert family_of(template.text).name == template.family


@pytest.mark.parametrize(
    ("family", "text", "arguments"),
    [
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1,}}</tool_call>', '{"a": 1,}'),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a"}}</tool_call>', '{"a"}'),
        ("hermes", '<tool_call>{"name":"add","arguments":"{}"}</tool_call>', '"{}"'),
        ("hermes", '<tool_call>{"arguments": { "a":1 }, "name": "add"}</tool_call>', '{ "a":1 }'),
        ("hermes", '<tool_call>{"name": "add"}</tool_call>', "{}"),
        ("llama3", '<|python_tag|>{"name": "add", "parameters": {"a":\t1}}', '{"a":\t1}'),
        ("mistral", '[TOOL_CALLS]add[ARGS]{"a": 1', '{"a": 1'),
        ("mistral", '[TOOL_CALLS] [{"name": "add", "arguments": {"a": [1, 2]}}]', '{"a": [1, 2]}'),
        ("harmony", "<|channel|>commentary to=functions.add<|message|>{oops", "{oops"),
        ("glm4", 'add\n{"a": oops}', '{"a": oops}'),
    ],
)
def test_arguments_are_what_the_model_wrote(family, text, arguments):
    (call,) = read(family, text).calls
    assert (call.name, call.arguments) == ("add", arguments)


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("hermes", '<tool_call>{"name": "add", "arg'),
        ("hermes", "<tool_call>add(1)</tool_call>"),
        ("hermes", '<tool_call>{"name": "add", "arguments": {}}</tool_call> and then'),
        ("hermes", '<tool_call>{"name": 7, "arguments": {}}</tool_call>'),
        ("llama3", '{"name": "other", "parameters": {}}'),
        ("llama3", '{"a": 1}'),
        ("mistral", "[TOOL_CALLS]"),
        ("mistral", '[TOOL_CALLS][{"name": "add", "arguments": {}}] more'),
        ("gemma4", "<|tool_call>call:add{a:}<tool_call|>"),
        ("gemma4", "<|tool_call>call:add{a:1<tool_call|>"),
        ("glm", "<tool_call>add\n<arg_key>a</arg_key></tool_call>"),
        ("glm4", 'other\n{"a": 1}'),
        ("qwen_xml", "<tool_call>\n<function=add>\nx\n</function>\n</tool_call>"),
        ("deepseek", "<｜tool▁calls▁begin｜>add"),
        ("plain", '<tool_call>{"name": "add", "arguments": {}}</tool_call>'),
    ],
)
def test_what_is_no_call_stays_in_the_content(family, text):
    found = read(family, text)
    assert (found.content, found.calls) == (text, ())


def test_nothing_is_a_call_where_no_tools_are_offered():
    text = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
    assert read("hermes", text, tools=()).content == text


def test_values_without_quotes_follow_the_tools_schema():
    text = (
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n"
        "<parameter=t>\n1\n</parameter>\n<parameter=other>\nno json\n</parameter>\n"
        "</function>\n</tool_call>"
    )
    (call,) = read("qwen_xml", text).calls
    assert json.loads(call.arguments) == {"a": 1, "t": "1", "other": "no json"}


def test_several_calls_of_llama_are_divided_by_semicolons():
    one = '{"name": "add", "parameters": {"a": 1}}'
    assert len(read("llama3", f"{one}; {one}").calls) == 2


@pytest.mark.parametrize(
    ("after", "text", "reasoning", "content"),
    [
        ("", "<think>\nwhy\n</think>\n\nso", "why", "so"),
        ("<|im_start|>assistant\n<think>\n", "why\n</think>\n\nso", "why", "so"),
        ("<|im_start|>assistant\n<think>\n", "cut off here", "cut off here", ""),
        ("<think>\n\n</think>\n\n", "so", None, "so"),
        ("", "so <think>no</think>", None, "so <think>no</think>"),
        ("", "<think></think>so", "", "so"),
    ],
)
def test_reasoning_is_what_stands_first(after, text, reasoning, content):
    found = read("hermes", text, after)
    assert (found.reasoning, found.content) == (reasoning, content)


def test_harmony_keeps_its_channels_apart():
    found = read(
        "harmony",
        "<|channel|>analysis<|message|>why<|end|><|start|>assistant"
        "<|channel|>commentary<|message|>I will add. <|end|><|start|>assistant"
        "<|channel|>final<|message|>so",
    )
    assert (found.reasoning, found.content, found.calls) == ("why", "I will add. so", ())
