"""Answers that are held to a form, for every family: random walks along the grammar."""

import json
import random

import pytest
from tests.unit.models.chat_templates import TEMPLATES

from training_gym.models.parsers.families import family_of
from training_gym.spec.errors import FormError
from training_gym.spec.forms import AnswerForm
from training_gym.spec.messages import ToolSpec, user
from training_gym.spec.sampling import Sampling

pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")

ADD = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 99},
        "unit": {"enum": ["m", "km", "“mile”"]},
    },
    "required": ["a", "unit"],
    "additionalProperties": False,
}
TOOLS = [
    ToolSpec(name="add_up", description="Adds.", parameters=ADD),
    ToolSpec(name="stop-now", description="Stops.", parameters={"properties": {}}),
]
CONTENT = {"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"]}
CONTENT = {**CONTENT, "additionalProperties": False}
SEEDS = range(6)


@pytest.fixture(scope="module", params=TEMPLATES, ids=lambda template: template.name)
def family(request, tmp_path_factory):
    template = request.param
    return template, template.codec(tmp_path_factory.mktemp("codec")), family_of(template.text)


def walk(codec, grammar, seed, marks):
    """A random answer that the grammar allows; where anything may be said, it is often a mark."""
    from training_gym.engines.local.grammars import Grammars

    matcher = Grammars(codec).matcher(Sampling(form=grammar))
    choose = random.Random(seed)
    ids, planned = [], []
    for _ in range(3000):
        allowed = matcher.allowed().nonzero().flatten().tolist()
        ends = [token for token in allowed if token in codec.stop_ids]
        if not planned and choose.random() < (0.2 if ids else 0.7):
            planned = codec.encode(choose.choice(marks))
        if planned and planned[0] not in allowed:
            planned = []
        if planned:
            token = planned.pop(0)
        else:
            token = choose.choice(ends if ends and choose.random() < 0.2 else allowed)
        ids.append(token)
        matcher.take(token)
        if token in codec.stop_ids:
            return ids
    raise AssertionError(f"no end: {codec.decode(ids)[:200]!r}")


def answers(family, form, tools=TOOLS):
    """Random answers as messages."""
    _, codec, kind = family
    marks = [mark.strip() for mark in kind.reasoning or ()]
    if kind.notations:
        notation = kind.notation(family[0].text)
        marks.append(f"{notation.opening}{notation.before}add_up{notation.middle}{{")
    after = codec.encode(codec.render([user("Go.")], tools=tools))
    grammar = codec.grammar(form, after=after, tools=tools)
    for seed in SEEDS:
        ids = walk(codec, grammar, seed, marks or ["a"])
        yield codec.read_answer(ids, after=after, tools=tools)


def check_calls(message):
    for call in message.tool_calls:
        (tool,) = (tool for tool in TOOLS if tool.name == call.name)
        jsonschema.validate(json.loads(call.arguments), tool.parameters)


def holds_calls(family):
    template, _, kind = family
    return template.calls and bool(kind.notations)


def test_a_required_call_is_of_a_tool_with_its_arguments(family):
    if not holds_calls(family):
        return
    for message in answers(family, AnswerForm(least_calls=1)):
        assert message.tool_calls
        assert not message.text
        check_calls(message)


def test_the_one_tool_that_is_named_is_called_once(family):
    if not holds_calls(family):
        return
    form = AnswerForm(least_calls=1, most_calls=1, callable_tools=("stop-now",))
    for message in answers(family, form):
        (call,) = message.tool_calls
        assert call.name == "stop-now"


def test_where_calls_are_free_they_still_follow_their_schemas(family):
    if not holds_calls(family):
        return
    found = list(answers(family, AnswerForm()))
    assert len({bool(message.tool_calls) for message in found}) == 2
    for message in found:
        check_calls(message)


def test_where_no_call_may_be_made_none_is_read(family):
    if not holds_calls(family):
        return
    assert not any(m.tool_calls for m in answers(family, AnswerForm(most_calls=0)))


def test_content_follows_its_schema_behind_free_reasoning(family):
    template, _, kind = family
    if kind.channels:
        return
    thoughts = set()
    for message in answers(family, AnswerForm(content_schema=json.dumps(CONTENT)), tools=()):
        jsonschema.validate(json.loads(message.text), CONTENT)
        thoughts.add(message.reasoning is not None)
    assert True in thoughts or not template.reasons


def test_content_or_calls(family):
    if not holds_calls(family):
        return
    for message in answers(family, AnswerForm(content_schema=json.dumps(CONTENT))):
        check_calls(message)
        if not message.tool_calls:
            jsonschema.validate(json.loads(message.text), CONTENT)


def test_what_cannot_be_held_is_refused(family):
    template, codec, kind = family
    if template.calls and not holds_calls(family):
        with pytest.raises(FormError, match=f"family {kind.name}|held to no form"):
            codec.grammar(AnswerForm(least_calls=1), tools=TOOLS)
    with pytest.raises(FormError, match="no tool is offered" if not kind.channels else "several"):
        codec.grammar(AnswerForm(least_calls=1))
