import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_gym.models.weights import load_codec
from training_gym.models.weights.tiny import byte_tokenizer
from training_gym.rollouts.record import TokenRecord
from training_gym.spec.episodes import PROMPT, SAMPLED, STOP, TOOL
from training_gym.spec.messages import Message, ToolSpec, assistant, system, user
from training_gym.spec.sampling import Completion
from training_gym.testing.scripted_sampler import ScriptedSampler


def tool(text):
    return Message(role="tool", content=text)


def sample(codec, path, text, **changes):
    """Add an answer as a sampler would have drawn it; returns its message."""
    completion = ScriptedSampler(codec, ()).completion(text).changed(**changes)
    message = assistant(codec.decode_visible(completion.token_ids))
    path.add_sampled(completion, message)
    return message


def flagged(path, codec, flag):
    return codec.decode([t for t, f in zip(path.token_ids, path.flags, strict=True) if f & flag])


def test_a_second_turn_appends_only_what_is_new(codec):
    record = TokenRecord(codec)
    first = [system("Be brief."), user("One?")]
    path = record.open("policy", first)
    reply = sample(codec, path, "1")
    before = list(path.token_ids)
    grown = record.open("policy", [*first, reply, user("Two?")])
    assert grown is path
    assert path.token_ids[: len(before)] == before
    added = codec.decode(path.token_ids[len(before) :])
    # The newline that the template writes behind a turn is kept: the model was trained with it.
    assert added == "\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n"
    assert record.forks == 0


def test_every_token_says_who_made_it(codec):
    record = TokenRecord(codec)
    path = record.open("policy", [user("Ask.")])
    asked = sample(codec, path, "call")
    record.open("policy", [user("Ask."), asked, tool("found")])
    answer = sample(codec, path, "done", versions=(7,) * 5)
    record.open("policy", [user("Ask."), asked, tool("found"), answer, user("Thanks.")])
    assert flagged(path, codec, SAMPLED) == "call<|im_end|>done<|im_end|>"
    assert flagged(path, codec, STOP) == "<|im_end|><|im_end|>"
    assert flagged(path, codec, TOOL) == (
        "\n<|im_start|>tool\nfound<|im_end|>\n<|im_start|>assistant\n"
    )
    assert flagged(path, codec, PROMPT).endswith("user\nThanks.<|im_end|>\n<|im_start|>assistant\n")
    (made,) = record.trajectories()
    sampled = [flag & SAMPLED > 0 for flag in made.flags]
    assert list(made.loss_mask) == sampled
    assert [v for v, on in zip(made.versions, sampled, strict=True) if on] == [0] * 5 + [7] * 5
    assert all(v == -1 for v, on in zip(made.versions, sampled, strict=True) if not on)
    assert all((p < 0) == on for p, on in zip(made.logprobs, sampled, strict=True))
    assert codec.decode(made.token_ids[: made.prompt_length]).endswith("assistant\n")


def test_a_changed_history_forks_and_leaves_the_old_path_alone(codec):
    record = TokenRecord(codec)
    path = record.open("policy", [user("a")])
    reply = sample(codec, path, "b")
    kept = list(path.token_ids)
    other = record.open("policy", [user("A"), reply, user("c")])
    assert other is not path
    assert (record.forks, path.token_ids) == (1, kept)
    assert not any(flag & SAMPLED for flag in other.flags)
    sample(codec, other, "d")
    first, second = record.trajectories()
    assert (first.num_sampled, second.num_sampled) == (2, 2)


def test_the_longest_matching_path_grows(codec):
    record = TokenRecord(codec)
    short = record.open("policy", [user("a")])
    reply = sample(codec, short, "b")
    history = [user("a"), reply, user("c")]
    record.open("policy", history)
    answer = sample(codec, short, "d")
    again = record.open("policy", [user("a")])  # the same question once more: a path of its own
    assert sample(codec, again, "b") == reply
    assert record.open("policy", [*history, answer, user("e")]) is short
    assert record.open("policy", [user("a"), reply, user("other")]) is again


def test_an_answer_that_was_cut_off_cannot_grow(codec):
    record = TokenRecord(codec)
    path = record.open("policy", [user("a")])
    cut = Completion(
        token_ids=tuple(codec.encode("bcd")),
        logprobs=(-1.0,) * 3,
        versions=(0,) * 3,
        stop_reason="length",
    )
    path.add_sampled(cut, assistant("bcd"))
    forked = record.open("policy", [user("a"), assistant("bcd"), user("e")])
    assert forked is not path
    assert not any(flag & STOP for flag in path.flags)
    assert codec.decode(forked.token_ids) == codec.render([user("a"), assistant("bcd"), user("e")])


def test_an_answer_that_a_stop_text_ended_forks_too(codec):
    # Its turn has no end token, so what follows in the template would not fit behind it.
    record = TokenRecord(codec)
    path = record.open("policy", [user("a")])
    ids = tuple(codec.encode("x\n"))
    path.add_sampled(
        Completion(token_ids=ids, logprobs=(-1.0,) * 2, versions=(0, 0), stop_reason="stop"),
        assistant("x\n"),
    )
    messages = [user("a"), assistant("x\n"), user("b")]
    forked = record.open("policy", messages)
    assert forked is not path
    assert codec.decode(forked.token_ids) == codec.render(messages)


def test_agents_have_paths_of_their_own(codec):
    record = TokenRecord(codec)
    white = record.open("white", [user("Move.")])
    move = sample(codec, white, "e4")
    black = record.open("black", [user("Move.")])
    assert record.forks == 0
    sample(codec, black, "e5")
    assert record.open("white", [user("Move."), move, user("Next.")]) is white
    assert record.open("black", [user("Move."), move, user("Next.")]) is not black
    assert [t.agent for t in record.trajectories()] == ["white", "black"]


def test_tools_are_rendered_once(codec):
    tools = [ToolSpec(name="search")]
    record = TokenRecord(codec)
    path = record.open("policy", [user("a")], tools)
    reply = sample(codec, path, "b")
    messages = [user("a"), reply, user("c")]
    assert record.open("policy", messages, tools) is path
    assert codec.decode(path.token_ids) == codec.render(messages, tools=tools)


def test_nothing_sampled_is_no_trajectory(codec):
    record = TokenRecord(codec)
    record.open("policy", [user("a")])
    assert record.trajectories() == ()


def test_a_raw_text_is_continued_as_it_stands(codec):
    path = TokenRecord(codec).open_raw("policy", "1+1=")
    assert path.token_ids == codec.encode("1+1=")
    assert path.prompt_length == 4


FORGETFUL = """\
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{{- m.content.split('</think>')[-1] if not loop.last else m.content }}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def test_a_template_that_drops_old_thoughts_never_rewrites_what_was_sampled(tmp_path):
    tokenizer = byte_tokenizer((), 2048, chat_template=True)
    tokenizer.chat_template = FORGETFUL
    tokenizer.save_pretrained(tmp_path)
    codec = load_codec(tmp_path)
    record = TokenRecord(codec)
    path = record.open("policy", [user("a")])
    reply = sample(codec, path, "hm</think>b")
    messages = [user("a"), reply, user("c")]
    assert record.open("policy", messages) is path
    assert "hm</think>b<|im_end|>\n<|im_start|>user\nc" in codec.decode(path.token_ids)
    assert "hm" not in codec.render(messages)


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
TURNS = st.lists(
    st.tuples(
        TEXTS,
        st.lists(
            st.builds(
                lambda role, text: Message(role=role, content=text),
                st.sampled_from(("user", "tool", "system")),
                TEXTS,
            ),
            min_size=1,
            max_size=3,
        ),
    ),
    max_size=5,
)


@pytest.mark.parametrize("opening", [[user("go")], [system("s\n"), user("")]])
@settings(deadline=None, max_examples=50)
@given(turns=TURNS)
def test_a_grown_path_is_the_templates_own_rendering(codec, opening, turns):
    """Where what was sampled encodes back to itself, growing equals rendering the whole."""
    record = TokenRecord(codec)
    messages = list(opening)
    path = record.open("policy", messages)
    for text, new in turns:
        reply = sample(codec, path, text)
        assert reply.text == text
        messages = [*messages, reply, *new]
        assert record.open("policy", messages) is path
        assert codec.decode(path.token_ids) == codec.render(messages)
        assert path.token_ids == codec.encode(codec.render(messages))
    assert record.forks == 0
    lengths = {len(getattr(path, name)) for name in ("token_ids", "flags", "logprobs", "versions")}
    assert lengths == {len(path.token_ids)}
