import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_gym.models.weights import load_codec
from training_gym.models.weights.tiny import byte_tokenizer
from training_gym.rollouts.drift import drift_rate
from training_gym.rollouts.record import TokenRecord
from training_gym.spec.drift import DriftLimits
from training_gym.spec.episodes import PROMPT, SAMPLED, STOP, TOOL
from training_gym.spec.errors import DriftError
from training_gym.spec.messages import Message, ToolSpec, assistant, system, user
from training_gym.spec.sampling import Completion
from training_gym.testing.scripted_sampler import ScriptedSampler


def tool(text):
    return Message(role="tool", content=text)


def sample(record, codec, opened, text, tools=(), **changes):
    """Add an answer as a sampler would have drawn it; returns its message."""
    completion = ScriptedSampler(codec, ()).completion(text).changed(**changes)
    message = codec.read_answer(
        completion.token_ids,
        after=opened.token_ids,
        tools=tools,
        first_call=record.next_call,
    )
    record.answer(opened.node, completion, message)
    return message


def flagged(trajectory, codec, flag):
    pairs = zip(trajectory.token_ids, trajectory.flags, strict=True)
    return codec.decode([token for token, on in pairs if on & flag])


def test_a_second_turn_appends_only_what_is_new(codec):
    record = TokenRecord(codec)
    first = [system("Be brief."), user("One?")]
    opened = record.open("policy", first)
    reply = sample(record, codec, opened, "1")
    before = (*opened.token_ids, *codec.encode("1<|im_end|>"))
    grown = record.open("policy", [*first, reply, user("Two?")])
    assert grown.token_ids[: len(before)] == before
    added = codec.decode(grown.token_ids[len(before) :])
    # The newline that the template writes behind a turn is kept: the model was trained with it.
    assert added == "\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n"
    assert record.forks == 0
    assert [f.kind for f in record.fidelity] == ["opened", "grown"]
    assert grown.fidelity.recorded_tokens == len(before)
    assert grown.fidelity.exact


def test_every_token_says_who_made_it(codec):
    record = TokenRecord(codec)
    asked = sample(record, codec, record.open("policy", [user("Ask.")]), "call")
    history = [user("Ask."), asked, tool("found")]
    answer = sample(record, codec, record.open("policy", history), "done", versions=(7,) * 5)
    history += [answer, tool("more"), user("Thanks.")]
    sample(record, codec, record.open("policy", history), "Bye.")
    (made,) = record.trajectories()
    assert flagged(made, codec, SAMPLED) == "call<|im_end|>done<|im_end|>Bye.<|im_end|>"
    assert flagged(made, codec, STOP) == "<|im_end|><|im_end|><|im_end|>"
    # A tool and a user in one go: each piece has its own flag.
    assert flagged(made, codec, TOOL) == (
        "\n<|im_start|>tool\nfound<|im_end|>\n<|im_start|>assistant\n"
        "\n<|im_start|>tool\nmore<|im_end|>\n"
    )
    assert flagged(made, codec, PROMPT).endswith(
        "<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n"
    )
    sampled = [flag & SAMPLED > 0 for flag in made.flags]
    assert list(made.loss_mask) == sampled
    drawn = [v for v, on in zip(made.versions, sampled, strict=True) if on]
    assert drawn == [0] * 5 + [7] * 5 + [0] * 5
    assert all(v == -1 for v, on in zip(made.versions, sampled, strict=True) if not on)
    assert all((p < 0) == on for p, on in zip(made.logprobs, sampled, strict=True))
    assert codec.decode(made.token_ids[: made.prompt_length]).endswith("assistant\n")


def test_a_changed_history_forks_and_leaves_the_old_path_alone(codec):
    record = TokenRecord(codec)
    opened = record.open("policy", [user("a")])
    reply = sample(record, codec, opened, "b")
    other = record.open("policy", [user("A"), reply, user("c")])
    assert record.forks == 1
    assert other.fidelity.reason == "the history is not what was recorded"
    sample(record, codec, other, "d")
    first, second = record.trajectories()
    assert (first.num_sampled, second.num_sampled) == (2, 2)
    assert first.token_ids == (*opened.token_ids, *codec.encode("b<|im_end|>"))
    # What was sampled elsewhere is context here: neither trained nor with old log-probabilities.
    assert flagged(second, codec, SAMPLED) == "d<|im_end|>"
    assert not any(second.logprobs[: second.prompt_length])


def test_an_answer_that_was_changed_forks_behind_what_is_still_the_same(codec):
    record = TokenRecord(codec)
    reply = sample(record, codec, record.open("policy", [user("a")]), "b")
    history = [user("a"), reply, user("c")]
    sample(record, codec, record.open("policy", history), "d")
    forked = record.open("policy", [*history, assistant("edited"), user("e")])
    assert (forked.fidelity.kind, record.forks) == ("forked", 1)
    sample(record, codec, forked, "f")
    first, second = record.trajectories()
    shared = codec.render([user("a")]) + "b<|im_end|>"
    assert codec.decode(second.token_ids).startswith(shared)
    assert flagged(first, codec, SAMPLED) == "b<|im_end|>d<|im_end|>"
    assert flagged(second, codec, SAMPLED) == "b<|im_end|>f<|im_end|>"


def test_a_shared_answer_is_trained_once_and_context_elsewhere(codec):
    record = TokenRecord(codec)
    reply = sample(record, codec, record.open("policy", [user("a")]), "shared")
    for text in ("one", "two", "three"):
        opened = record.open("policy", [user("a"), reply, user(text)])
        sample(record, codec, opened, f"answer to {text}")
    made = record.trajectories()
    assert len(made) == 3
    assert [f.kind for f in record.fidelity] == ["opened", "grown", "branched", "branched"]
    trained = "".join(
        codec.decode([t for t, on in zip(one.token_ids, one.loss_mask, strict=True) if on])
        for one in made
    )
    assert trained.count("shared<|im_end|>") == 1
    assert trained.count("answer to") == 3
    # Sampled stays sampled, with its log-probabilities, also where it is context.
    assert all("shared" in flagged(one, codec, SAMPLED) for one in made)
    assert sum(one.num_sampled for one in made) == len(codec.encode(trained))


def test_one_prompt_answered_twice_is_two_paths_from_one_root(codec):
    record = TokenRecord(codec)
    once = record.open("policy", [user("a")])
    twice = record.open("policy", [user("a")])
    assert once.node is twice.node
    sample(record, codec, once, "b")
    sample(record, codec, twice, "c")
    first, second = record.trajectories()
    assert (first.num_sampled, second.num_sampled) == (2, 2)
    assert first.prompt_length == second.prompt_length
    assert record.forks == 0


def test_the_longest_matching_path_grows(codec):
    record = TokenRecord(codec)
    reply = sample(record, codec, record.open("policy", [user("a")]), "b")
    history = [user("a"), reply, user("c")]
    answer = sample(record, codec, record.open("policy", history), "d")
    again = record.open("policy", [user("a")])
    assert sample(record, codec, again, "b") == reply
    longest = record.open("policy", [*history, answer, user("e")])
    assert "c<|im_end|>\n<|im_start|>assistant\nd<|im_end|>" in codec.decode(longest.token_ids)
    assert longest.fidelity.kind == "grown"
    # Two answers say the same: the conversation goes on from the one that was given last.
    latest = record.open("policy", [user("a"), reply, user("other")])
    assert latest.node.parent is again.node.children[-1]


def test_an_answer_that_nobody_got_is_not_trained_on(codec):
    record = TokenRecord(codec)
    opened = record.open("policy", [user("a")])
    completion = ScriptedSampler(codec, ()).completion("lost")
    node = record.answer(opened.node, completion, assistant("lost"), delivered=False)
    assert record.trajectories() == ()
    record.open("policy", [user("a"), assistant("lost"), user("b")])  # it had arrived after all
    assert node.counts
    assert len(record.trajectories()) == 1


def test_a_cut_off_answer_goes_on_where_the_template_writes_just_its_text(codec):
    record = TokenRecord(codec)
    opened = record.open("policy", [user("a")])
    ids = tuple(codec.encode("bcd"))
    cut = Completion(token_ids=ids, logprobs=(-1.0,) * 3, versions=(0,) * 3, stop_reason="length")
    record.answer(opened.node, cut, assistant("bcd"))
    grown = record.open("policy", [user("a"), assistant("bcd"), user("e")])
    assert grown.fidelity.kind == "grown"
    assert codec.decode(grown.token_ids) == codec.render([user("a"), assistant("bcd"), user("e")])
    sample(record, codec, grown, "f")
    (made,) = record.trajectories()
    # The end of turn that the template supplies was not sampled.
    assert flagged(made, codec, SAMPLED) == "bcdf<|im_end|>"


def test_an_answer_without_its_stop_text_forks(codec):
    record = TokenRecord(codec)
    opened = record.open("policy", [user("a")])
    ids = tuple(codec.encode("x\nEND"))
    count = len(ids)
    stopped = Completion(
        token_ids=ids, logprobs=(-1.0,) * count, versions=(0,) * count, stop_reason="stop"
    )
    record.answer(opened.node, stopped, assistant("x\n"))
    messages = [user("a"), assistant("x\n"), user("b")]
    forked = record.open("policy", messages)
    assert forked.fidelity.reason == "the answer was cut off or ended by a stop text"
    assert codec.decode(forked.token_ids) == codec.render(messages)


def test_agents_have_paths_of_their_own(codec):
    record = TokenRecord(codec)
    move = sample(record, codec, record.open("white", [user("Move.")]), "e4")
    sample(record, codec, record.open("black", [user("Move.")]), "e5")
    assert record.forks == 0
    assert record.open("white", [user("Move."), move, user("Next.")]).fidelity.kind == "grown"
    assert record.open("black", [user("Move."), move, user("Next.")]).fidelity.kind == "forked"
    assert [t.agent for t in record.trajectories()] == ["white", "black"]


def test_tools_are_rendered_once_and_other_tools_are_another_conversation(codec):
    tools = [ToolSpec(name="search")]
    record = TokenRecord(codec)
    reply = sample(record, codec, record.open("policy", [user("a")], tools), "b", tools)
    messages = [user("a"), reply, user("c")]
    grown = record.open("policy", messages, tools)
    assert codec.decode(grown.token_ids) == codec.render(messages, tools=tools)
    assert record.open("policy", messages, [ToolSpec(name="other")]).fidelity.kind == "forked"


def test_nothing_sampled_is_no_trajectory(codec):
    record = TokenRecord(codec)
    record.open("policy", [user("a")])
    assert record.trajectories() == ()


def test_a_raw_text_is_continued_as_it_stands(codec):
    opened = TokenRecord(codec).open_raw("policy", "1+1=")
    assert opened.token_ids == tuple(codec.encode("1+1="))


FORGETFUL = """\
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{{- m.content.split('</think>')[-1] if not loop.last else m.content }}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def forgetful(tmp_path):
    tokenizer = byte_tokenizer((), 2048, chat_template=True)
    tokenizer.chat_template = FORGETFUL
    tokenizer.save_pretrained(tmp_path)
    return load_codec(tmp_path)


def test_a_template_that_drops_old_thoughts_begins_a_new_path(tmp_path):
    codec = forgetful(tmp_path)
    record = TokenRecord(codec)
    reply = sample(record, codec, record.open("policy", [user("a")]), "hm</think>b")
    forked = record.open("policy", [user("a"), reply, user("c")])
    assert forked.fidelity.reason == "the template rewrites history when new messages come"
    assert codec.decode(forked.token_ids) == codec.render([user("a"), reply, user("c")])
    sample(record, codec, forked, "d")
    first, second = record.trajectories()
    assert flagged(first, codec, SAMPLED) == "hm</think>b<|im_end|>"
    assert flagged(second, codec, SAMPLED) == "d<|im_end|>"


def test_drift_can_be_refused_at_once_or_above_a_budget(tmp_path):
    codec = forgetful(tmp_path)
    strict = TokenRecord(codec, DriftLimits(on_drift="refuse"))
    reply = sample(strict, codec, strict.open("policy", [user("a")]), "hm</think>b")
    with pytest.raises(DriftError, match="rewrites history") as caught:
        strict.open("policy", [user("a"), reply, user("c")])
    assert "on_drift='fork'" in caught.value.fix
    assert len(strict.fidelity) == 1  # what was refused is no prompt

    record = TokenRecord(codec, DriftLimits(max_rate=0.5, judged_from=3))
    messages = [user("a")]
    for text in ("b", "hm</think>c", "hm</think>d"):
        messages += [sample(record, codec, record.open("policy", messages), text), user("e")]
    with pytest.raises(DriftError, match="2 of 3 prompts"):
        record.open("policy", messages)
    assert drift_rate(record.fidelity) == 0.5


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
@settings(max_examples=settings.default.max_examples // 2)
@given(turns=TURNS)
def test_a_grown_path_is_the_templates_own_rendering(codec, opening, turns):
    """Where what was sampled encodes back to itself, growing equals rendering the whole."""
    record = TokenRecord(codec)
    messages = list(opening)
    opened = record.open("policy", messages)
    for text, new in turns:
        reply = sample(record, codec, opened, text)
        assert reply.text == text
        messages = [*messages, reply, *new]
        opened = record.open("policy", messages)
        assert codec.decode(opened.token_ids) == codec.render(messages)
        assert list(opened.token_ids) == codec.encode(codec.render(messages))
    assert record.forks == 0
    sample(record, codec, opened, "end")
    (made,) = record.trajectories()
    lengths = {len(getattr(made, name)) for name in ("token_ids", "flags", "logprobs", "versions")}
    assert lengths == {len(made.token_ids)}


def test_a_conversation_is_found_without_looking_at_all_the_others(codec, monkeypatch):
    from training_gym.rollouts import record as module

    compared = []
    same = module.same_messages

    def counted(recorded, sent):
        compared.append(recorded)
        return same(recorded, sent)

    monkeypatch.setattr(module, "same_messages", counted)
    record = TokenRecord(codec)
    for number in range(200):
        record.open("policy", [user(f"Question {number}")])
    record.open("policy", [user("Question 17")])
    assert len(compared) <= 2
