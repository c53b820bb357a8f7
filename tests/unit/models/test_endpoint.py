import asyncio
import json

import httpx
import pytest

from training_gym.models.endpoint import EndpointPolicy
from training_gym.spec.endpoints import Endpoint
from training_gym.spec.errors import EnvironmentFailure, FormError
from training_gym.spec.forms import AnswerForm, Grammar
from training_gym.spec.messages import Message, ToolCall, ToolSpec, user
from training_gym.spec.sampling import Sampling


def answer(content="hello", finish="stop", **message):
    return httpx.Response(
        200,
        json={
            "choices": [{"message": {"content": content, **message}, "finish_reason": finish}],
            "usage": {"completion_tokens": 3, "prompt_tokens": 7},
        },
    )


GREETING = user("hi")


def ask(*responses, messages=(GREETING,), endpoint=None, sampling=None, **options):
    """What the policy answers when a server gives these responses, and what was sent."""
    left, sent = list(responses), []

    def serve(request):
        sent.append(request)
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def main():
        made = endpoint or Endpoint(base_url="http://server/v1", model="m", backoff_s=0)
        transport = httpx.MockTransport(serve)
        async with EndpointPolicy(made, sampling, transport=transport) as policy:
            return await policy.chat(messages, **options), policy

    reply, policy = asyncio.run(main())
    return reply, policy, sent


def test_a_conversation_with_tools_goes_over_and_comes_back():
    calls = [{"id": "1", "function": {"name": "look", "arguments": '{"at": '}}]
    before = Message(role="assistant", tool_calls=(ToolCall(id="0", name="look", arguments="{}"),))
    result = Message(role="tool", content="dark", tool_call_id="0")
    reply, policy, (request,) = ask(
        answer(None, "tool_calls", tool_calls=calls, reasoning_content="hm"),
        messages=[user("hi"), before, result],
        tools=[ToolSpec(name="look", parameters={"type": "object"})],
        sampling=Sampling(temperature=0.5, max_tokens=9, stop=("x",)),
    )
    body = json.loads(request.content)
    assert str(request.url) == "http://server/v1/chat/completions"
    assert body["messages"][1]["tool_calls"][0]["function"] == {"name": "look", "arguments": "{}"}
    assert body["messages"][2] == {"role": "tool", "content": "dark", "tool_call_id": "0"}
    assert body["tools"][0]["function"]["name"] == "look"
    assert (body["temperature"], body["max_tokens"], body["stop"]) == (0.5, 9, ["x"])
    assert reply.tool_calls == (ToolCall(id="1", name="look", arguments='{"at": '),)
    assert reply.reasoning == "hm"
    assert (policy.num_tokens, policy.num_prompt_tokens, policy.stop_reasons) == (3, 7, ["stop"])


def test_what_may_pass_is_tried_again():
    busy = httpx.Response(429, headers={"Retry-After": "0"})
    reply, _, sent = ask(busy, httpx.ConnectError("no route"), answer("at last", "length"))
    assert (reply.text, len(sent)) == ("at last", 3)


@pytest.mark.parametrize(
    ("responses", "said"),
    [
        ([httpx.Response(503)] * 4, "no answer in 4 tries: status 503"),
        ([httpx.ReadTimeout("slow")] * 4, "no answer in 4 tries: ReadTimeout: slow"),
        ([httpx.Response(401, text="bad key")], "refused: 401 bad key"),
        ([httpx.Response(200, text="<html>")], "answered with no completion"),
        ([httpx.Response(200, json={"choices": []})], "answered with no completion"),
    ],
)
def test_what_does_not_pass_says_who_and_what(responses, said):
    with pytest.raises(EnvironmentFailure, match=said):
        ask(*responses)


def test_the_key_is_read_from_its_variable_and_sent(monkeypatch):
    endpoint = Endpoint(base_url="http://server/v1", model="m", key_env="SERVER_KEY")
    monkeypatch.delenv("SERVER_KEY", raising=False)
    with pytest.raises(EnvironmentFailure, match="SERVER_KEY is not set"):
        ask(answer(), endpoint=endpoint)
    monkeypatch.setenv("SERVER_KEY", "secret")
    _, _, (request,) = ask(answer(), endpoint=endpoint)
    assert request.headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (AnswerForm(most_calls=0), {"tool_choice": "none"}),
        (
            AnswerForm(least_calls=1, most_calls=1),
            {"tool_choice": "required", "parallel_tool_calls": False},
        ),
        (
            AnswerForm(content_schema='{"type": "object"}', loose_tools=("look",)),
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "answer",
                        "strict": True,
                        "schema": {"type": "object"},
                    },
                }
            },
        ),
    ],
)
def test_the_form_of_an_answer_is_asked_for_in_the_servers_words(form, expected):
    tools = [ToolSpec(name="look"), ToolSpec(name="go")]
    _, _, (request,) = ask(answer(), tools=tools, sampling=Sampling(form=form))
    body = json.loads(request.content)
    named = ("tool_choice", "parallel_tool_calls", "response_format")
    assert {name: body[name] for name in named if name in body} == expected
    strict = {t["function"]["name"]: t["function"]["strict"] for t in body["tools"]}
    assert strict == {"look": "look" not in form.loose_tools, "go": True}


def test_of_tools_that_may_not_be_called_none_is_sent():
    tools = [ToolSpec(name="look"), ToolSpec(name="go")]
    form = AnswerForm(least_calls=1, callable_tools=("go",))
    _, _, (request,) = ask(answer(), tools=tools, sampling=Sampling(form=form))
    assert [t["function"]["name"] for t in json.loads(request.content)["tools"]] == ["go"]


def test_a_server_takes_no_grammar():
    with pytest.raises(FormError, match="no grammar"):
        ask(answer(), sampling=Sampling(form=Grammar(lark='start: "a"')))
