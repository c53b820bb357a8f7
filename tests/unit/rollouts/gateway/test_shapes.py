"""Every field of every answer, read strictly by the clients' own models: nothing lacks, nothing is
of another kind, and nothing is there that the providers do not write."""

import json

import httpx
import pytest
from pydantic import BaseModel, TypeAdapter

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

CALL = '<tool_call>{"name": "add", "arguments": {"a":1, "b": 2}}</tool_call>'
TEXT = f"<think>hm hm</think>Two words.{CALL}"
HELLO = [{"role": "user", "content": "Hello"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTION = {"name": "add", "description": "Adds.", "parameters": SCHEMA}
ADDED = {"reasoning_content"}
"""What we write besides, in the words of other servers."""


async def post(served, path, body):
    head = {"authorization": f"Bearer {served.session.key}"}
    async with httpx.AsyncClient(headers=head, base_url=served.session.url) as client:
        made = await client.post(path, json={"model": "m", **body})
    assert made.status_code == 200, made.text
    return made


def events(text):
    """The events of a stream: names and data."""
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines())
        if lines["data"] != "[DONE]":
            yield lines.get("event"), json.loads(lines["data"])


def strictly(kind, value):
    """Read `value` as `kind`, and look for what it has no field for."""
    made = TypeAdapter(kind).validate_python(value, strict=True)
    unknown = set(strange(made))
    assert unknown <= ADDED, unknown
    return made


def strange(made):
    if isinstance(made, BaseModel):
        yield from made.model_extra or ()
        for name in type(made).model_fields:
            yield from strange(getattr(made, name))
    elif isinstance(made, list):
        for each in made:
            yield from strange(each)


CHAT = {
    "messages": HELLO,
    "tools": [{"type": "function", "function": FUNCTION}],
    "logprobs": True,
    "n": 2,
}


def test_chat_completions(serve, play):
    async def talk():
        async with serve([TEXT] * 4) as served:
            got = await post(served, "/v1/chat/completions", CHAT)
            made = strictly(openai.types.chat.ChatCompletion, got.json())
            assert made.choices[0].message.refusal is None
            assert "refusal" in made.choices[0].message.model_fields_set
            body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
            got = await post(served, "/v1/chat/completions", body)
            chunks = [
                strictly(openai.types.chat.ChatCompletionChunk, data)
                for _, data in events(got.text)
            ]
            assert {chunk.id for chunk in chunks} == {chunks[0].id}
            assert [chunk.usage is None for chunk in chunks[-2:]] == [True, False]
            assert all("usage" in chunk.model_fields_set for chunk in chunks)
            logprobs = [c.choices[0].logprobs for c in chunks[:-1] if c.choices[0].index == 0]
            assert 2 * sum(len(each.content) for each in logprobs if each) == (
                made.usage.completion_tokens
            )
            thought = len("<think>hm hm")
            assert made.usage.completion_tokens_details.reasoning_tokens == 2 * thought

    play(talk())


def test_completions(serve, play):
    body = {"prompt": "Hello", "max_tokens": 30, "logprobs": 0, "n": 2}

    async def talk():
        async with serve([" world"] * 4) as served:
            got = await post(served, "/v1/completions", body)
            made = strictly(openai.types.Completion, got.json())
            assert made.choices[0].logprobs.tokens[:2] == [" ", "w"]
            got = await post(served, "/v1/completions", {**body, "stream": True})
            for _, data in events(got.text):
                if data["choices"][0]["finish_reason"] is None:  # as the provider says it, too
                    data["choices"][0]["finish_reason"] = "stop"
                strictly(openai.types.Completion, data)

    play(talk())


RESPONSES = {
    "input": "Hello",
    "tools": [{"type": "function", **FUNCTION, "strict": False}],
    "include": ["message.output_text.logprobs"],
    "temperature": 1.0,
    "instructions": "Be brief.",
}


def test_responses(serve, play):
    async def talk():
        async with serve([TEXT] * 2) as served:
            got = await post(served, "/v1/responses", RESPONSES)
            made = strictly(openai.types.responses.Response, got.json())
            assert made.output_text == "Two words."
            assert made.usage.output_tokens_details.reasoning_tokens > 0
            got = await post(served, "/v1/responses", {**RESPONSES, "stream": True})
            found = [
                (name, strictly(openai.types.responses.ResponseStreamEvent, data))
                for name, data in events(got.text)
            ]
            assert all(name == event.type for name, event in found)
            assert [event.sequence_number for _, event in found] == list(range(len(found)))
            final = found[-1][1].response
            assert final.output_text == made.output_text
            assert final.usage == made.usage

    play(talk())


MESSAGES = {
    "messages": HELLO,
    "max_tokens": 200,
    "tools": [{"name": "add", "description": "Adds.", "input_schema": SCHEMA}],
}


def test_messages(serve, play):
    async def talk():
        async with serve([TEXT] * 2) as served:
            got = await post(served, "/v1/messages", MESSAGES)
            strictly(anthropic.types.Message, got.json())
            got = await post(served, "/v1/messages", {**MESSAGES, "stream": True})
            found = [
                (name, strictly(anthropic.types.RawMessageStreamEvent, data))
                for name, data in events(got.text)
            ]
            assert all(name == event.type for name, event in found)
            assert found[0][0] == "message_start"
            assert [name for name, _ in found[-2:]] == ["message_delta", "message_stop"]
            thought = [e for _, e in found if getattr(e, "index", None) == 0]
            kinds = [e.delta.type for e in thought if e.type == "content_block_delta"]
            assert kinds[-1] == "signature_delta"

    play(talk())


def test_models(serve, play):
    async def talk():
        async with serve([]) as served:
            api = openai.AsyncOpenAI(
                base_url=served.session.openai_url, api_key=served.session.key, max_retries=0
            )
            served.clients.append(api)
            (model,) = [m async for m in api.models.list()]
            strictly(openai.types.Model, model.to_dict())

    play(talk())


@pytest.mark.parametrize(
    ("path", "status", "openais", "anthropics"),
    [
        ("bad key", 401, "AuthenticationError", "AuthenticationError"),
        ("bad body", 400, "BadRequestError", "BadRequestError"),
        ("over", 403, "PermissionDeniedError", "PermissionDeniedError"),
    ],
)
def test_errors_have_the_clients_types(serve, play, path, status, openais, anthropics):
    async def talk():
        async with serve(["x"]) as served:
            key = "forged" if path == "bad key" else served.session.key
            if path == "over":
                served.session.ended_by = RuntimeError("3 turns")
            extra = {"extra_body": {"temperature": 7}} if path == "bad body" else {}
            one = openai.AsyncOpenAI(base_url=served.session.openai_url, api_key=key, max_retries=0)
            other = anthropic.AsyncAnthropic(
                base_url=served.session.anthropic_url, api_key=key, max_retries=0
            )
            served.clients += [one, other]
            with pytest.raises(getattr(openai, openais)) as caught:
                await one.chat.completions.create(model="m", messages=HELLO, **extra)
            assert caught.value.status_code == status
            assert {"message", "type", "param", "code"} == caught.value.body.keys()
            with pytest.raises(getattr(anthropic, anthropics)) as caught:
                await other.messages.create(model="m", max_tokens=9, messages=HELLO, **extra)
            assert caught.value.body["type"] == "error"
            assert set(caught.value.body["error"]) == {"type", "message"}
            assert "request_id" in caught.value.body

    play(talk())
