"""Every family's template: what is rebuilt is what was captured, token for token."""

import json
import string

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.unit.models.chat_templates import TEMPLATES, Call

from training_gym.rollouts.meaning import same_message
from training_gym.rollouts.record import TokenRecord
from training_gym.spec.episodes import SAMPLED
from training_gym.spec.messages import (
    MediaPart,
    Message,
    TextPart,
    ToolCall,
    ToolSpec,
    system,
    user,
)
from training_gym.spec.sampling import Completion

TOOLS = [
    ToolSpec(
        name=name,
        description="Does.",
        parameters={"type": "object", "properties": {"text": {"type": "string"}}},
    )
    for name in ("search", "run_it")
]
WORDS = st.text(string.ascii_lowercase[:6] + " \n'é漢🙂{}<", max_size=12).map(str.strip)
PLAIN = st.text("ab the", min_size=1, max_size=8).map(lambda text: f"a{text.strip()}")
VALUES = st.one_of(st.integers(-9, 9), st.booleans(), st.lists(st.integers(0, 3), max_size=2))
ARGUMENTS = st.fixed_dictionaries({}, optional={"text": PLAIN, "n": VALUES})
CALLS = st.lists(st.builds(Call, st.sampled_from(("search", "run_it")), ARGUMENTS), max_size=3)


@pytest.fixture(scope="module", params=TEMPLATES, ids=lambda template: template.name)
def family(request, tmp_path_factory):
    return request.param, request.param.codec(tmp_path_factory.mktemp("codec"))


def drawn(codec, specials, text, end, *, keep=None):
    """Ids as a sampler may draw them: letter by letter, where encoding finds longer tokens."""
    ids, rest = [], text
    special = {token: codec.encode(token)[0] for token in specials if token in text}
    while rest:
        token = next((t for t in special if rest.startswith(t)), rest[0])
        ids += [special[token]] if token in special else codec.encode(token)
        rest = rest[len(token) :]
    ids += codec.encode(end)
    kept = tuple(ids if keep is None else ids[: max(int(len(ids) * keep), 1)])
    whole = len(kept) == len(ids)
    return Completion(
        token_ids=kept,
        logprobs=tuple(-0.1 * (place + 1) for place in range(len(kept))),
        versions=(3,) * len(kept),
        stop_reason="stop" if whole else "length",
    )


def sent_again(message):
    """A harness's own copy: arguments spaced and ordered anew, no reasoning, no empty content."""
    calls = []
    for call in message.tool_calls:
        value = json.loads(call.arguments)
        written = json.dumps(dict(reversed(value.items())), separators=(",", ":"))
        calls.append(ToolCall(id=call.id, name=call.name, arguments=written))
    return Message(role="assistant", content=message.text.strip(), tool_calls=tuple(calls))


TURN = st.tuples(
    st.one_of(st.none(), PLAIN),
    WORDS,
    CALLS,
    st.lists(PLAIN, min_size=1, max_size=3),
    st.booleans(),
)


@settings(
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    max_examples=settings.default.max_examples // 6,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(opening=st.sampled_from((None, "Be brief.")), turns=st.lists(TURN, min_size=1, max_size=4))
def test_what_is_rebuilt_is_what_was_captured(family, opening, turns):
    template, codec = family
    tools = TOOLS if template.calls else []
    record = TokenRecord(codec)
    messages = [*([system(opening)] if opening else []), user("Go.")]
    captured = []
    for reasoning, content, calls, results, rephrased in turns:
        opened = record.open("policy", messages, tools)
        check_prompt(codec, opened, captured, messages, tools)
        calls = calls[: template.most_calls] if template.calls else []
        content = content if template.with_content or not calls else ""
        reasoning = reasoning if template.reasons else None
        text = template.write(reasoning, content, calls)
        completion = drawn(codec, template.special, text, template.end(calls))
        reply = codec.read_answer(
            completion.token_ids, after=opened.token_ids, tools=tools, first_call=record.next_call
        )
        check_reply(template, reply, reasoning, content, calls)
        record.answer(opened.node, completion, reply)
        captured.append((opened.token_ids, completion))
        again = sent_again(reply) if rephrased else reply
        assert same_message(reply, again)
        said = [
            Message(role="tool", content=result, tool_call_id=call.id, name=call.name)
            for call, result in zip(reply.tool_calls, results * 3, strict=False)
        ]
        messages = [*messages, again, *(said or [user(results[0])])]
        # Going on from a call to its results is what agents do all day: it never forks.
        if said:
            grown = record.open("policy", messages, tools)
            kept = template.keeps_reasoning or reasoning is None
            assert grown.fidelity.kind == ("grown" if kept else "forked"), grown.fidelity.reason
    check_trajectories(codec, record, captured)


def check_prompt(codec, opened, captured, messages, tools):
    """A prompt either continues the captured ids or is the template's own text as a whole."""
    if opened.fidelity.recorded_tokens:
        before, completion = captured[-1]
        known = (*before, *completion.token_ids)
        assert opened.token_ids[: len(known)] == known
        assert opened.fidelity.recorded_tokens == len(known)
        # What is new is encoded once, from where a special token ends.
        added = opened.token_ids[len(known) :]
        assert list(added) == codec.encode(codec.decode(added))
    else:
        assert codec.decode(opened.token_ids) == codec.render(opened.node.messages, tools=tools)


def check_reply(template, reply, reasoning, content, calls):
    assert reply.text.strip() == content.strip(), template.name
    assert (reply.reasoning or None) == (reasoning or None)
    assert [call.name for call in reply.tool_calls] == [call.name for call in calls]
    assert [json.loads(call.arguments) for call in reply.tool_calls] == [
        call.arguments for call in calls
    ]


def check_trajectories(codec, record, captured):
    """Every captured answer is in a path just as it was, and is trained exactly once."""
    trained = []
    for made in record.trajectories():
        rows = zip(made.token_ids, made.flags, made.logprobs, made.versions, strict=True)
        trained += [
            (token, logprob)
            for (token, flag, logprob, version), on in zip(rows, made.loss_mask, strict=True)
            if on and flag & SAMPLED and version == 3
        ]
    expected = [
        pair
        for _, completion in captured
        for pair in zip(completion.token_ids, completion.logprobs, strict=True)
    ]
    assert trained == expected


@settings(
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    max_examples=settings.default.max_examples // 6,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(content=PLAIN, calls=CALLS, keep=st.floats(0.05, 0.95))
def test_an_answer_that_was_cut_off_is_never_completed_by_guess(family, content, calls, keep):
    template, codec = family
    tools = TOOLS if template.calls else []
    calls = calls[: template.most_calls] if template.calls else []
    record = TokenRecord(codec)
    opened = record.open("policy", [user("Go.")], tools)
    text = template.write("thought" if template.reasons else None, content, calls)
    completion = drawn(codec, template.special, text, template.end(calls), keep=keep)
    reply = codec.read_answer(completion.token_ids, after=opened.token_ids, tools=tools)
    record.answer(opened.node, completion, reply)
    said = [
        Message(role="tool", content="r", tool_call_id=call.id, name=call.name)
        for call in reply.tool_calls
    ]
    history = [user("Go."), reply, *(said or [user("And?")])]
    after = record.open("policy", history, tools)
    known = (*opened.token_ids, *completion.token_ids)
    if after.fidelity.kind == "grown":
        assert after.token_ids[: len(known)] == known
        assert codec.decode(after.token_ids) == codec.render(history, tools=tools)
    else:
        assert after.fidelity.reason
        assert codec.decode(after.token_ids) == codec.render(history, tools=tools)
    check_trajectories(codec, record, [(opened.token_ids, completion)])


def test_images_are_placeholders_in_their_places(family):
    template, codec = family
    picture = MediaPart(type="image", sha256="ab" * 32)
    shown = Message(role="user", content=(TextPart(text="See"), picture, TextPart(text="this")))
    if template.images is None:
        with pytest.raises(Exception, match="the chat template knows text only"):
            codec.render([shown])
        return
    record = TokenRecord(codec)
    opened = record.open("policy", [shown])
    assert f"See{template.images}this" in codec.decode(opened.token_ids)
    completion = drawn(codec, template.special, "ab", template.stop)
    reply = codec.read_answer(completion.token_ids, after=opened.token_ids)
    record.answer(opened.node, completion, reply)
    grown = record.open("policy", [shown, reply, user("ok")])
    if template.family == "qwen_xml":
        assert grown.fidelity.kind == "forked"  # the mark that opened the answer is stripped
    else:
        assert grown.token_ids[: len(opened.token_ids)] == opened.token_ids
        assert grown.fidelity.kind == "grown"
    other = Message(
        role="user",
        content=(
            TextPart(text="See"),
            picture.changed(sha256="cd" * 32),
            TextPart(text="this"),
        ),
    )
    assert record.open("policy", [other, reply, user("ok")]).fidelity.kind == "forked"


STRIPPING = ("qwen3", "qwen3.5", "glm4.5", "gemma4", "gpt_oss")


def test_reasoning_that_a_template_strips_forks_and_else_stays(family):
    template, codec = family
    if not template.reasons:
        return
    record = TokenRecord(codec)
    opened = record.open("policy", [user("Go.")])
    completion = drawn(codec, template.special, template.write("why", "so", []), template.stop)
    reply = codec.read_answer(completion.token_ids, after=opened.token_ids)
    assert reply.reasoning == "why"
    record.answer(opened.node, completion, reply)
    after = record.open("policy", [user("Go."), reply, user("And?")])
    assert after.fidelity.kind == (
        "forked" if template.name.partition("/")[0] in STRIPPING else "grown"
    )
    assert ("why" in codec.decode(after.token_ids)) == (
        template.name.partition("/")[0] not in STRIPPING
    )


def test_marks_in_the_middle_of_an_answer_are_text(family):
    template, codec = family
    if template.opens_reasoning or template.family == "harmony":
        return  # there the notation says what is content
    text = "Write <think>x</think> and <tool_call> yourself"
    completion = drawn(codec, template.special, template.write(None, text, []), template.stop)
    reply = codec.read_answer(completion.token_ids, tools=TOOLS)
    assert reply.text.strip() == text
    assert not reply.tool_calls


def test_templates_write_what_the_tokenizers_own_method_writes(family):
    template, codec = family
    call = ToolCall(id="call00000", name="search", arguments='{"text": "é <b>", "n": [1, null]}')
    answer = Message(
        role="assistant",
        content="" if template.calls else "So.",
        reasoning="Hm." if template.reasons else None,
        tool_calls=(call,) if template.calls else (),
    )
    said = [user("Go."), answer]
    if template.calls:
        said.append(Message(role="tool", content="found", tool_call_id="call00000"))
    else:
        said.append(user("On."))
    direct = codec._writer
    writers = direct._writers
    for tools in ((), TOOLS) if template.calls else ((),):
        for opened in (True, False):
            options = {"tools": tools, "add_generation_prompt": opened}
            codec._writer = direct
            text = codec.render(said, **options)
            codec._writer = type(direct)(direct._tokenizer)
            codec._writer._writers = dict.fromkeys((True, False), direct._applied)
            assert text == codec.render(said, **options)
    codec._writer = direct
    assert writers
    assert direct._applied not in writers.values()
