"""The official clients ask a model for answers of a form: a real sampler, random weights."""

import contextlib
import json
from typing import Literal

import pytest
import torch
from pydantic import BaseModel, ConfigDict

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.models.weights import load_codec, load_model
from training_gym.models.weights.tiny import tiny_model
from training_gym.rollouts.gateway.gateway import Gateway
from training_gym.rollouts.policy import SampledPolicy
from training_gym.rollouts.record import TokenRecord
from training_gym.spec.episodes import FORCED
from training_gym.spec.sampling import SampleKey, Sampling

pytest.importorskip("llguidance")
openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

HELLO = [{"role": "user", "content": "Hello"}]
PARAMETERS = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2, 3]}, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
ADD = {"name": "add", "description": "Adds.", "parameters": PARAMETERS}
NOW = {"name": "now", "description": "The time.", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": {**tool}} for tool in (ADD, NOW)]
FUNCTIONS = [{"type": "function", **tool, "strict": False} for tool in (ADD, NOW)]
CUSTOM = [{"name": "add", "description": "Adds.", "input_schema": PARAMETERS}]


class Trip(BaseModel):
    model_config = ConfigDict(extra="forbid")
    days: Literal[1, 2, 30]
    by: Literal["train", "boat"]


class Served:
    """A gateway over a tiny model whose template knows no reasoning."""

    def __init__(self, gateway, session, record):
        self.gateway, self.session, self.record = gateway, session, record
        self.openai = openai.AsyncOpenAI(
            base_url=session.openai_url, api_key=session.key, max_retries=0
        )
        self.anthropic = anthropic.AsyncAnthropic(
            base_url=session.anthropic_url, api_key=session.key, max_retries=0
        )


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tiny_model(tmp_path_factory.mktemp("tiny") / "llama", "llama")
    template = folder / "chat_template.jinja"
    thought = "{%- if message.reasoning_content %}"
    text = template.read_text()
    start = text.index(thought)
    template.write_text(text[:start] + text[text.index("{%- endif %}", start) + 12 :])
    network = Network(load_model(folder, dtype="float32", device="cpu"))
    network.model.eval()
    return network, load_codec(folder)


@pytest.fixture
def serve(tiny):
    @contextlib.asynccontextmanager
    async def serving(**options):
        network, codec = tiny
        compute = Compute()
        sampler = LocalSampler(network, codec, compute, slots=8, max_sequence_tokens=900)
        record = TokenRecord(codec)
        own = Sampling(max_tokens=300)
        policy = SampledPolicy(
            sampler, codec, record, SampleKey(seed=0, task="t"), own, session="s"
        )
        async with await Gateway.start() as gateway:
            session = gateway.open(policy, name="episode", **{"sampling": own, **options})
            served = Served(gateway, session, record)
            try:
                yield served
            finally:
                await served.openai.close()
                await served.anthropic.close()
                await sampler.close()
                compute.close()
        assert gateway.application.faults == 0

    return serving


def test_chat_completions_parse_into_the_clients_own_model(serve, play):
    async def talk():
        async with serve(pinned=True) as served:
            api = served.openai.chat.completions
            made = await api.parse(model="m", messages=HELLO, response_format=Trip, n=4)
            assert all(isinstance(choice.message.parsed, Trip) for choice in made.choices)
            async with api.stream(model="m", messages=HELLO, response_format=Trip) as stream:
                async for _ in stream:
                    pass
                final = await stream.get_final_completion()
            assert isinstance(final.choices[0].message.parsed, Trip)
            with pytest.raises(openai.LengthFinishReasonError):
                await api.parse(model="m", messages=HELLO, response_format=Trip, max_tokens=5)
            cut = await api.create(
                model="m", messages=HELLO, response_format={"type": "json_object"}, max_tokens=5
            )
            assert cut.choices[0].finish_reason == "length"
            assert cut.choices[0].message.content.startswith("{")
            assert all(fidelity.constrained for fidelity in served.record.fidelity)
            flags = {flag for t in served.record.trajectories() for flag in t.flags}
            assert any(flag & FORCED for flag in flags)

    play(talk())


def test_responses_parse_into_the_clients_own_model(serve, play):
    async def talk():
        async with serve() as served:
            api = served.openai.responses
            made = await api.parse(model="m", input="Hello", text_format=Trip)
            assert isinstance(made.output_parsed, Trip)
            async with api.stream(model="m", input="Hello", text_format=Trip) as stream:
                async for _ in stream:
                    pass
                assert isinstance((await stream.get_final_response()).output_parsed, Trip)
            called = await api.create(
                model="m",
                input="Hello",
                tools=FUNCTIONS,
                tool_choice={"type": "function", "name": "add"},
                parallel_tool_calls=False,
            )
            (call,) = called.output
            assert (call.type, call.name) == ("function_call", "add")
            assert set(json.loads(call.arguments)) == {"a", "b"}
            assert called.tool_choice.name == "add"
            assert called.parallel_tool_calls is False

    play(talk())


def test_messages_parse_into_the_clients_own_model(serve, play):
    async def talk():
        async with serve() as served:
            api = served.anthropic.messages
            made = await api.parse(model="m", max_tokens=200, messages=HELLO, output_format=Trip)
            assert isinstance(made.parsed_output, Trip)
            called = await api.create(
                model="m",
                max_tokens=300,
                messages=HELLO,
                tools=CUSTOM,
                tool_choice={"type": "any", "disable_parallel_tool_use": True},
            )
            (block,) = called.content
            assert (called.stop_reason, block.name) == ("tool_use", "add")
            assert set(block.input) == {"a", "b"}
            named = {"type": "tool", "name": "add"}
            async with api.stream(
                model="m", max_tokens=300, messages=HELLO, tools=CUSTOM, tool_choice=named
            ) as stream:
                final = await stream.get_final_message()
            assert {block.type for block in final.content} == {"tool_use"} or (
                final.stop_reason == "max_tokens"
            )

    play(talk())


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
def test_a_tool_that_has_to_be_called_is(serve, play, choice):
    async def talk():
        async with serve() as served:
            made = await served.openai.chat.completions.create(
                model="m",
                messages=HELLO,
                tools=TOOLS,
                tool_choice=choice,
                parallel_tool_calls=False,
                n=3,
            )
            for choice_made in made.choices:
                if choice_made.finish_reason == "length":
                    continue  # an open object may go on for long
                (call,) = choice_made.message.tool_calls
                arguments = json.loads(call.function.arguments)
                assert call.function.name in ("add", "now")
                assert call.function.name == "now" or set(arguments) == {"a", "b"}
                assert choice_made.finish_reason == "tool_calls"
            names = {c.function.name for m in made.choices for c in m.message.tool_calls or ()}
            assert names == {"add"} or choice == "required"

    play(talk())


def test_strict_tools_and_no_tools_are_held_too(serve, play):
    strict = [{"type": "function", "function": {**ADD, "strict": True}}]

    async def talk():
        async with serve() as served:
            api = served.openai.chat.completions
            made = await api.create(model="m", messages=HELLO, tools=strict, max_tokens=20)
            assert not made.choices[0].message.tool_calls
            none = await api.create(
                model="m", messages=HELLO, tools=TOOLS, tool_choice="none", max_tokens=20
            )
            assert not none.choices[0].message.tool_calls
            assert all(each.constrained for each in served.record.fidelity)

    play(talk())


@pytest.mark.parametrize(
    ("extra", "param", "says"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.json_schema.schema",
            "required",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "strange"}},
                }
            },
            "response_format",
            "cannot be held",
        ),
        ({"tools": TOOLS, "tool_choice": "always"}, None, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice", "none is offered"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "no"}}},
            "tool_choice",
            "not offered",
        ),
    ],
)
def test_what_cannot_be_held_is_refused_by_name(serve, play, extra, param, says):
    async def talk():
        async with serve() as served:
            with pytest.raises(openai.BadRequestError, match=says) as caught:
                await served.openai.chat.completions.create(model="m", messages=HELLO, **extra)
            assert param is None or caught.value.param == param
            assert served.session.failure is None
            assert not served.record.trajectories()

    play(talk())
