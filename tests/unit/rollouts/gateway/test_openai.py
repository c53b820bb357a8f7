"""The official client of OpenAI against the gateway."""

import json

import pytest

openai = pytest.importorskip("openai")

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
CALL = '<tool_call>{"name": "add", "arguments": {"a":1, "b": 2}}</tool_call>'
HELLO = [{"role": "user", "content": "Hello"}]


def client(served):
    session = served.session
    made = openai.AsyncOpenAI(base_url=session.openai_url, api_key=session.key, max_retries=0)
    served.clients.append(made)
    return made


def test_a_chat_with_tools_and_reasoning_is_one_exact_path(serve, play, codec):
    answers = [f"<think>sum them</think>{CALL}", "It is 3."]

    async def talk():
        async with serve(answers) as served:
            api = client(served).chat.completions
            messages = [{"role": "system", "content": "Be brief."}, *HELLO]
            first = await api.create(model="policy", messages=messages, tools=[TOOL])
            choice = first.choices[0]
            assert choice.finish_reason == "tool_calls"
            assert choice.message.content is None
            assert choice.message.reasoning_content == "sum them"
            (call,) = choice.message.tool_calls
            assert (call.function.name, call.function.arguments) == ("add", '{"a":1, "b": 2}')
            # The client writes the message anew: other spaces, no reasoning, null for no content.
            again = {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": "add", "arguments": json.dumps({"b": 2, "a": 1})},
                    }
                ],
            }
            messages += [again, {"role": "tool", "tool_call_id": call.id, "content": "3"}]
            second = await api.create(model="policy", messages=messages, tools=[TOOL])
            assert second.choices[0].message.content == "It is 3."
            assert second.usage.completion_tokens == len(codec.encode("It is 3.")) + 1
            (made,) = served.record.trajectories()
            assert answers[0] in codec.decode(made.token_ids)
            assert made.num_sampled == sum(len(codec.encode(a)) + 1 for a in answers)
            assert [f.kind for f in served.record.fidelity] == ["opened", "grown"]
            assert served.session.messages[-1].text == "It is 3."

    play(talk())


def test_a_stream_says_the_same_as_an_answer(serve, play):
    text = f"<think>hm hm</think>Two words.{CALL}{CALL}"

    async def talk():
        async with serve([text]) as served:
            found = {"content": "", "reasoning": "", "calls": {}, "end": None, "usage": None}
            stream = await client(served).chat.completions.create(
                model="policy",
                messages=HELLO,
                tools=[TOOL],
                stream=True,
                stream_options={"include_usage": True},
            )
            async for chunk in stream:
                found["usage"] = chunk.usage or found["usage"]
                for choice in chunk.choices:
                    found["content"] += choice.delta.content or ""
                    found["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
                    found["end"] = choice.finish_reason or found["end"]
                    for call in choice.delta.tool_calls or ():
                        name, arguments = found["calls"].get(call.index, ("", ""))
                        written = call.function.arguments or ""
                        found["calls"][call.index] = (
                            name or call.function.name,
                            arguments + written,
                        )
            assert found["content"] == "Two words."
            assert found["reasoning"] == "hm hm"
            assert found["end"] == "tool_calls"
            assert found["calls"] == dict.fromkeys((0, 1), ("add", '{"a":1, "b": 2}'))
            assert found["usage"].total_tokens > 0
            assert len(served.record.trajectories()) == 1

    play(talk())


def test_what_a_request_asks_for_reaches_the_sampler(serve, play, codec):
    async def talk():
        async with serve(["one", "two", "three"]) as served:
            api = client(served).chat.completions
            made = await api.create(
                model="any-name",
                messages=HELLO,
                n=2,
                temperature=0.5,
                top_p=0.9,
                max_completion_tokens=1000,
                stop=["END"],
                logprobs=True,
            )
            assert made.model == "any-name"
            assert {choice.message.content for choice in made.choices} == {"one", "two"}
            entries = made.choices[0].logprobs.content
            assert [entry.logprob for entry in entries] == [-0.5, -1.0, -1.5, -2.0]
            assert entries[-1].token == "<|im_end|>"
            sampling = served.sampler.calls[0].sampling
            assert (sampling.temperature, sampling.top_p, sampling.stop) == (0.5, 0.9, ("END",))
            assert sampling.max_tokens == 256  # the session's most
            cut = await api.create(model="m", messages=HELLO, max_tokens=2)
            assert cut.choices[0].finish_reason == "length"
            assert cut.choices[0].message.content == "th"

    play(talk())


def test_a_pinned_session_draws_as_the_run_does(serve, play):
    async def talk():
        async with serve(["one"], pinned=True) as served:
            api = client(served).chat.completions
            await api.create(model="m", messages=HELLO, temperature=0, max_tokens=7)
            sampling = served.sampler.calls[0].sampling
            assert (sampling.temperature, sampling.max_tokens) == (1.0, 7)

    play(talk())


def test_a_stop_text_is_left_out_of_the_answer_and_kept_in_the_record(serve, play, codec):
    async def talk():
        ids = tuple(codec.encode("code END"))
        made = served_completion(ids)
        async with serve([made]) as served:
            api = client(served).chat.completions
            got = await api.create(model="m", messages=HELLO, stop="END")
            assert got.choices[0].message.content == "code "
            assert got.choices[0].finish_reason == "stop"
            (kept,) = served.record.trajectories()
            assert codec.decode(kept.token_ids).endswith("code END")

    play(talk())


def served_completion(ids):
    from training_gym.spec.sampling import Completion

    return Completion(
        token_ids=ids,
        logprobs=(-1.0,) * len(ids),
        versions=(0,) * len(ids),
        stop_reason="stop",
    )


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"functions": [{"name": "add"}]}, "functions"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"logprobs": True, "top_logprobs": 3}, "top_logprobs"),
        ({"extra_body": {"no_such": 1}}, "no_such"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(serve, play, extra, param):
    async def talk():
        async with serve(["x"]) as served:
            with pytest.raises(openai.BadRequestError) as caught:
                await client(served).chat.completions.create(model="m", messages=HELLO, **extra)
            assert caught.value.param == param
            assert served.sampler.calls == []

    play(talk())


def test_a_seed_has_its_own_random_numbers_unless_the_answer_is_trained_on(serve, play):
    async def talk():
        async with serve(["a", "b", "c", "d", "e"]) as served:
            api = client(served)
            await api.chat.completions.create(model="m", messages=HELLO, seed=7, n=2)
            await api.chat.completions.create(model="m", messages=HELLO)
            await api.completions.create(model="m", prompt="x", seed=8)
            await api.chat.completions.create(model="m", messages=HELLO)
            keys = [call.key for call in served.sampler.calls]
            assert keys[1] == keys[3] != keys[0]
            assert [key.turn for key in (keys[2], keys[4])] == [0, 1]
            assert (keys[2].task, keys[0].task) == ("episode", "")
        async with serve(["a"], pinned=True) as served:
            with pytest.raises(openai.BadRequestError, match="trained on"):
                await client(served).chat.completions.create(model="m", messages=HELLO, seed=7)
            assert served.sampler.calls == []
        async with serve(["a"], pinned=True, tolerated=frozenset(("seed",))) as served:
            await client(served).chat.completions.create(model="m", messages=HELLO, seed=7)
            assert served.sampler.calls[0].key.task == "episode"

    play(talk())


def test_what_asks_for_nothing_is_no_reason_to_refuse(serve, play):
    async def talk():
        async with serve(["x", "y"], tolerated=frozenset(("seed", "strict"))) as served:
            api = client(served).chat.completions
            neutral = {"frequency_penalty": 0, "logit_bias": {}, "tool_choice": "auto"}
            await api.create(
                model="m", messages=HELLO, response_format={"type": "text"}, user="u", **neutral
            )
            strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}
            await api.create(model="m", messages=HELLO, seed=3, tools=[strict])

    play(talk())


def test_a_raw_text_is_completed(serve, play, codec):
    async def talk():
        async with serve([" world", " again"]) as served:
            api = client(served).completions
            made = await api.create(model="m", prompt="Hello", max_tokens=32, logprobs=0)
            assert made.choices[0].text == " world"
            assert made.choices[0].logprobs.token_logprobs[0] == -0.5
            stream = await api.create(model="m", prompt="Hello", max_tokens=32, stream=True)
            text = "".join([c.choices[0].text async for c in stream])
            assert text == " again"
            assert served.sampler.calls[0].prompt.token_ids == tuple(codec.encode("Hello"))

    play(talk())


FUNCTION = {"type": "function", **TOOL["function"]}


def test_responses_go_on_from_one_another(serve, play, codec):
    answers = [f"<think>add</think>Adding.{CALL}", "It is 3.", "Bye."]

    async def talk():
        async with serve(answers, tolerated=frozenset(("strict",))) as served:
            api = client(served).responses
            first = await api.create(
                model="m", input="1+2?", instructions="Be brief.", tools=[FUNCTION]
            )
            assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
            assert first.output_text == "Adding."
            assert first.output[2].arguments == '{"a":1, "b": 2}'
            # Once by sending everything again, once by naming the answer before.
            items = [{"role": "user", "content": "1+2?"}]
            items += [item.to_dict() for item in first.output]
            result = {"type": "function_call_output", "output": "3"}
            items.append({**result, "call_id": first.output[2].call_id})
            second = await api.create(
                model="m", input=items, instructions="Be brief.", tools=[FUNCTION]
            )
            assert second.output_text == "It is 3."
            third = await api.create(
                model="m",
                input="Thanks.",
                instructions="Be brief.",
                tools=[FUNCTION],
                previous_response_id=second.id,
            )
            assert third.output_text == "Bye."
            assert [f.kind for f in served.record.fidelity] == ["opened", "grown", "grown"]
            (made,) = served.record.trajectories()
            assert made.num_sampled == sum(len(codec.encode(a)) + 1 for a in answers)
            with pytest.raises(openai.BadRequestError, match="no answer 'resp_other'"):
                await api.create(model="m", input="x", previous_response_id="resp_other")

    play(talk())


def test_responses_stream(serve, play):
    text = f"<think>hm</think>Two words.{CALL}"

    async def talk():
        async with serve([text]) as served:
            api = client(served).responses
            heard = {"text": "", "thought": "", "arguments": ""}
            async with api.stream(
                model="m", input="x", tools=[{**FUNCTION, "strict": False}]
            ) as stream:
                async for event in stream:
                    if event.type == "response.output_text.delta":
                        heard["text"] += event.delta
                    elif event.type == "response.reasoning_text.delta":
                        heard["thought"] += event.delta
                    elif event.type == "response.function_call_arguments.delta":
                        heard["arguments"] += event.delta
                final = await stream.get_final_response()
            assert heard == {"text": "Two words.", "thought": "hm", "arguments": '{"a":1, "b": 2}'}
            assert final.status == "completed"
            assert final.output_text == "Two words."
            assert final.usage.output_tokens > 0

    play(talk())
