"""The official client of Anthropic against the gateway."""

import pytest

anthropic = pytest.importorskip("anthropic")

TOOL = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}
CALL = '<tool_call>{"name": "add", "arguments": {"a":1, "b": 2}}</tool_call>'
ASK = {"model": "m", "max_tokens": 200, "tools": [TOOL]}
HELLO = [{"role": "user", "content": "Hello"}]


def client(served, key=None):
    session = served.session
    made = anthropic.AsyncAnthropic(
        base_url=session.anthropic_url, api_key=key or session.key, max_retries=0
    )
    served.clients.append(made)
    return made.messages


def test_a_conversation_with_tools_is_one_exact_path(serve, play, codec):
    answers = [f"<think>hm</think>Adding.{CALL}{CALL}", "Both 3."]

    async def talk():
        async with serve(answers) as served:
            api = client(served)
            first = await api.create(**ASK, system="Be brief.", messages=HELLO)
            assert first.stop_reason == "tool_use"
            assert [b.type for b in first.content] == ["thinking", "text", "tool_use", "tool_use"]
            assert first.content[2].input == {"a": 1, "b": 2}
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "3"}
                for block in first.content[2:]
            ]
            turns = [
                *HELLO,
                {"role": "assistant", "content": first.content},
                {"role": "user", "content": [*results, {"type": "text", "text": "And?"}]},
            ]
            second = await api.create(**ASK, system="Be brief.", messages=turns)
            assert second.content[0].text == "Both 3."
            assert second.stop_reason == "end_turn"
            (made,) = served.record.trajectories()
            text = codec.decode(made.token_ids)
            assert answers[0] in text
            tools = "<|im_start|>tool\n3<|im_end|>\n<|im_start|>tool\n3<|im_end|>\n"
            assert tools + "<|im_start|>user\nAnd?" in text
            assert [f.kind for f in served.record.fidelity] == ["opened", "grown"]

    play(talk())


def test_a_stream_adds_up_to_the_answer(serve, play):
    text = f"<think>hm hm</think>Two words.{CALL}"

    async def talk():
        async with serve([text]) as served:
            async with client(served).stream(**ASK, messages=HELLO) as stream:
                words = [piece async for piece in stream.text_stream]
                final = await stream.get_final_message()
            assert words == ["Two ", "words."]
            assert [b.type for b in final.content] == ["thinking", "text", "tool_use"]
            assert final.content[0].thinking == "hm hm"
            assert final.content[2].input == {"a": 1, "b": 2}
            assert final.stop_reason == "tool_use"
            assert final.usage.output_tokens > 0

    play(talk())


def test_broken_arguments_arrive_as_the_model_wrote_them_and_go_back_so(serve, play, codec):
    broken = '<tool_call>{"name": "add", "arguments": {"a": 1,}}</tool_call>'

    async def talk():
        async with serve([broken, "Sorry."]) as served:
            api = client(served)
            first = await api.create(**ASK, messages=HELLO)
            assert first.content[0].input == {"raw_arguments": '{"a": 1,}'}
            result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": "what?"}
            turns = [
                *HELLO,
                {"role": "assistant", "content": first.content},
                {"role": "user", "content": [result]},
            ]
            await api.create(**ASK, messages=turns)
            assert [f.kind for f in served.record.fidelity] == ["opened", "grown"]
            (made,) = served.record.trajectories()
            assert broken in codec.decode(made.token_ids)

    play(talk())


def test_limits_of_length_and_stop_texts_are_told(serve, play, codec):
    from training_gym.spec.sampling import Completion

    ids = tuple(codec.encode("a\nObs:"))
    stopped = Completion(
        token_ids=ids, logprobs=(-1.0,) * len(ids), versions=(0,) * len(ids), stop_reason="stop"
    )

    async def talk():
        async with serve(["long answer", stopped]) as served:
            api = client(served)
            cut = await api.create(model="m", max_tokens=4, messages=HELLO)
            assert (cut.stop_reason, cut.content[0].text) == ("max_tokens", "long")
            got = await api.create(
                model="m", max_tokens=40, messages=HELLO, stop_sequences=["Obs:"]
            )
            assert (got.stop_reason, got.stop_sequence) == ("stop_sequence", "Obs:")
            assert got.content[0].text == "a\n"

    play(talk())


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"container": "c1"}, "container"),
        ({"extra_body": {"no_such": 1}}, "no_such"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(serve, play, extra, param):
    async def talk():
        async with serve(["x"]) as served:
            with pytest.raises(anthropic.BadRequestError, match=f"parameter {param} = "):
                await client(served).create(**ASK, messages=HELLO, **extra)

    play(talk())


def test_a_wrong_key_is_an_authentication_error(serve, play):
    async def talk():
        async with serve(["x"]) as served:
            api = client(served, key="forged")
            with pytest.raises(anthropic.AuthenticationError, match="no open session"):
                await api.create(**ASK, messages=HELLO)

    play(talk())


def test_tokens_are_counted_and_nothing_is_recorded(serve, play, codec):
    async def talk():
        async with serve(["Hi."]) as served:
            api = client(served)
            counted = await api.count_tokens(model="m", system="Be brief.", messages=HELLO)
            assert not served.record.fidelity
            asked = await api.create(model="m", max_tokens=9, system="Be brief.", messages=HELLO)
            prompt = served.record.fidelity[0].prompt_tokens
            assert counted.input_tokens == prompt
            with_tools = await api.count_tokens(model="m", tools=[TOOL], messages=HELLO)
            assert with_tools.input_tokens > prompt
            assert asked.stop_reason == "end_turn"
            with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
                await api.count_tokens(model="m", messages=HELLO, extra_body={"max_tokens": 3})
            with pytest.raises(anthropic.AuthenticationError):
                await client(served, key="tg-forged").count_tokens(model="m", messages=HELLO)

    play(talk())


@pytest.mark.parametrize(
    ("content", "shown"),
    [("no such file", "Error: no such file"), ("ERROR 5", "ERROR 5"), ("", "Error")],
)
def test_a_tools_error_is_said_in_its_text(serve, play, codec, content, shown):
    async def talk():
        async with serve([CALL, "Oh."]) as served:
            api = client(served)
            first = await api.create(**ASK, messages=HELLO)
            result = {"type": "tool_result", "tool_use_id": first.content[0].id}
            failed = {**result, "content": content, "is_error": True}
            said = [*HELLO, {"role": "assistant", "content": first.content}]
            await api.create(**ASK, messages=[*said, {"role": "user", "content": [failed]}])
            text = codec.decode(served.sampler.calls[-1].prompt.token_ids)
            assert f"tool\n{shown}<|im_end|>" in text

    play(talk())


def test_an_image_is_refused(serve, play):
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    turn = {"role": "user", "content": [{"type": "image", "source": source}]}

    async def talk():
        async with serve([]) as served:
            with pytest.raises(anthropic.BadRequestError, match="image"):
                await client(served).create(model="m", max_tokens=9, messages=[turn])

    play(talk())
