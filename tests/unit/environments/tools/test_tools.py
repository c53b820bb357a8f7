import asyncio
import sys
import threading
import time
from typing import Literal

import pytest

from training_gym.environments.tools import ToolEnvironment
from training_gym.environments.tools.dialect import calls_in, described
from training_gym.environments.tools.tool import answer, as_text, function_tool
from training_gym.spec.code import Code
from training_gym.spec.errors import EnvironmentFailure, SandboxError, SpecError
from training_gym.spec.messages import Message, ToolCall, system, user
from training_gym.spec.tasks import Task
from training_gym.testing.scripted_policy import PlainContext, ScriptedPolicy


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fail(with_what: str):
    """Fail."""
    raise {"value": ValueError, "exit": SystemExit, "stop": StopIteration}[with_what]("broken")


def lose():
    """Lose the sandbox."""
    raise SandboxError("it is gone", fix="get another")


def hang(seconds: float):
    """Take a while."""
    time.sleep(seconds)


async def count(state, by: int) -> int:
    """Count on."""
    await asyncio.sleep(0)
    state["sum"] = state.get("sum", 0) + by
    return state["sum"]


def draw(ctx) -> int:
    """Draw a number."""
    return ctx.rng.randint(1, 6)


def call(function, arguments="{}", *, timeout_s=5.0, supplied=None, max_chars=200):
    tool = function_tool(function, supplied or {}, timeout_s)
    asked = ToolCall(id="c1", name=function.__name__, arguments=arguments)
    tools = {tool.spec.name: tool}
    message = asyncio.run(answer(asked, tools, max_chars=max_chars))
    assert (message.role, message.tool_call_id, message.name) == ("tool", "c1", asked.name)
    return message.text


@pytest.mark.parametrize(
    ("function", "arguments", "told"),
    [
        (add, '{"a": 2, "b": 3}', "5"),
        (add, '{"a": 2, "b": ', 'you wrote: {"a": 2, "b": '),
        (add, "[2, 3]", "no JSON object; you wrote: [2, 3]"),
        (add, '{"a": "two", "b": 3}', "a: Input should be a valid integer"),
        (add, '{"a": 2, "c": 3}', 'you wrote: {"a": 2, "c": 3}'),
        (fail, '{"with_what": "value"}', "error: ValueError: broken"),
        (fail, '{"with_what": "exit"}', "error: RuntimeError: SystemExit: broken"),
        (fail, '{"with_what": "stop"}', "error: RuntimeError: StopIteration: broken"),
        (fail, '{"with_what": "key"}', "error: KeyError: 'key'"),
    ],
)
def test_whatever_a_call_comes_to_is_told(function, arguments, told):
    assert told in call(function, arguments)


def test_a_call_that_takes_too_long_ends_and_holds_nobody_up():
    before = threading.active_count()
    assert call(hang, '{"seconds": 0.3}', timeout_s=0.02) == "error: hang took longer than 0.02 s"
    assert threading.active_count() <= before + 1


def test_a_long_result_is_cut_and_says_so():
    def talk() -> str:
        """Talk."""
        return "x" * 250

    assert call(talk, max_chars=200) == "x" * 200 + "\n… 50 more characters were cut off"


def test_what_is_supplied_reaches_the_function():
    assert call(count, '{"by": 2}', supplied={"state": {"sum": 1}}) == "3"
    assert call(draw, supplied={"ctx": PlainContext(seed=1)}) == "2"


def test_a_failure_of_infrastructure_is_no_message():
    with pytest.raises(SandboxError, match="it is gone"):
        call(lose)


def test_results_as_text():
    assert as_text({"a": float("nan")}) == '{"a":"NaN"}'
    assert as_text(None) == ""
    assert as_text("é") == "é"
    assert as_text(object) == str(object)


def play(environment, *script, prompt="What is 2+3?"):
    task = Task(id="t", prompt=prompt, answer=5, split_key="t")
    policy, ctx = ScriptedPolicy(*script), PlainContext()
    return asyncio.run(environment.run(task, policy, ctx)), policy, ctx


def calling(*pairs):
    calls = tuple(
        ToolCall(id=f"c{number}", name=name, arguments=arguments)
        for number, (name, arguments) in enumerate(pairs)
    )
    return Message(role="assistant", tool_calls=calls)


def test_native_calls_run_side_by_side_and_answer_in_order():
    environment = ToolEnvironment(tools=[add, hang, count])
    asked = calling(
        ("hang", '{"seconds": 0.2}'),
        ("add", '{"a": 2, "b": 3}'),
        ("nothing", ""),
    )
    began = time.monotonic()
    outcome, policy, ctx = play(environment, asked, calling(("count", '{"by": 1}')), "5")
    took = time.monotonic() - began
    assert outcome.status == "finished"
    assert [tool.name for tool in policy.tools[0]] == ["add", "hang", "count"]
    results = policy.asked[1][2:]
    assert [m.tool_call_id for m in results] == ["c0", "c1", "c2"]
    assert [m.text for m in results[:2]] == ["", "5"]
    assert results[2].text == "error: there is no tool 'nothing'; there are: add, count, hang"
    assert ctx.kept == {"tool_calls": {"hang": 1, "add": 1, "nothing": 1, "count": 1}}
    assert took < 60


def test_calls_wait_for_nobody():
    met = threading.Barrier(3, timeout=20)

    def meet():
        """Wait for the others."""
        met.wait()
        return "met"

    tools = {"meet": function_tool(meet, {}, 30)}
    asked = [ToolCall(id=str(n), name="meet", arguments="{}") for n in range(3)]

    async def all_of_them():
        return await asyncio.gather(*(answer(c, tools, max_chars=99) for c in asked))

    assert [m.text for m in asyncio.run(all_of_them())] == ["met"] * 3


def test_text_dialect_tells_reads_and_answers_in_plain_text():
    environment = ToolEnvironment(tools=[add], dialect="text")
    first = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
    outcome, policy, _ = play(environment, first, "5", prompt=(system("Rules."), user("2+3?")))
    assert outcome.status == "finished"
    opening = policy.asked[0]
    assert opening[0].text.startswith("Rules.\n\nYou may call tools.")
    assert opening[0].text.endswith("\nadd(a: integer, b: integer): Add two numbers.")
    assert policy.asked[1][-1] == user("<tool_result>5</tool_result>")
    assert policy.tools == [(), ()]


def test_a_tool_in_few_words():
    def look(at: str, how: Literal["near", "far"] = "near", *, places: list[int] | None = None):
        """Look.

        Args:
            at: What.
        """

    spec = function_tool(look, {}, 1.0).spec
    first, second = described(spec).splitlines()
    assert first.startswith('look(at: string, how: {"enum": ["near", "far"]')
    assert ' = "near", places: {"anyOf"' in first
    assert first.endswith(" = null): Look.")
    assert second == "  at: What."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no call", []),
        ('<tool_call>{"name": "a", "arguments": {"x": 1}}', [("a", '{"x": 1}')]),
        (
            '<tool_call>{"name": "a"}</tool_call><tool_call>{"name": "b"}</tool_call>',
            [("a", "{}"), ("b", "{}")],
        ),
        (
            '<tool_call>{"name": "a", "arguments": {"x": }</tool_call>',
            [("a", '{"name": "a", "arguments": {"x": }')],
        ),
        ("<tool_call>a(1)</tool_call>", [("", "a(1)")]),
        ('<tool_call>["a"]</tool_call>', [("", '["a"]')]),
        ('<tool_call>{"name": "a", "arguments": "x"}</tool_call>', [("a", "x")]),
    ],
)
def test_calls_are_read_and_never_mended(text, found):
    assert [(c.name, c.arguments) for c in calls_in(text)] == found


def test_without_an_end_the_episode_is_truncated():
    environment = ToolEnvironment(tools=[add], max_turns=2)
    outcome, *_ = play(environment, *[calling(("add", "{}"))] * 2)
    assert (outcome.status, outcome.reason) == ("truncated", "no answer after 2 turns")


def test_it_travels_as_source():
    environment = ToolEnvironment(tools=[add], timeouts={"add": 1.0}, dialect="text")
    code = Code.of(environment)
    again = Code(ref=code.ref, kwargs=code.kwargs).load()
    assert again.model_dump() == environment.model_dump()


def test_a_time_limit_for_a_tool_that_is_not_offered_is_refused():
    with pytest.raises(SpecError, match="a tool 'ad' that is not offered"):
        play(ToolEnvironment(tools=[add], timeouts={"ad": 1.0}), "5")
    with pytest.raises(SpecError, match="timeouts"):
        ToolEnvironment(tools=[add], timeouts={"add": 0})


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(SpecError, match="two tools are called 'add'"):
        play(ToolEnvironment(tools=[add, add]), "5")


SERVER = '''
from mcp.server import MCPServer

server = MCPServer("demo")

@server.tool()
def shout(text: str) -> str:
    """Say it loudly."""
    if text == "fail":
        raise ValueError("too loud")
    return text.upper()

@server.tool()
def whisper(text: str) -> str:
    """Say it quietly."""
    if text == "die":
        import os
        os._exit(1)
    return text.lower()

server.run()
'''


def test_mcp_servers_are_tools(tmp_path):
    pytest.importorskip("mcp")
    from training_gym.environments.tools import McpServer

    (tmp_path / "server.py").write_text(SERVER)
    command = (sys.executable, str(tmp_path / "server.py"))
    env = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    environment = ToolEnvironment(
        tools=[add], mcp=[McpServer(command=command, env=env, include=["shout"])]
    )
    asked = calling(
        ("shout", '{"text": "hello"}'),
        ("shout", '{"text": "fail"}'),
        ("shout", '{"t'),
    )
    _, policy, _ = play(environment, asked, "done")
    assert [spec.name for spec in policy.tools[0]] == ["add", "shout"]
    assert policy.tools[0][1].description == "Say it loudly."
    texts = [message.text for message in policy.asked[1][2:]]
    assert texts[0] == "HELLO"
    assert texts[1] == "error: Error executing tool shout"
    assert texts[2].startswith("error: the arguments are no JSON")


def test_a_server_that_does_not_start_is_a_failure_of_infrastructure():
    pytest.importorskip("mcp")
    from training_gym.environments.tools import McpServer

    environment = ToolEnvironment(mcp=[McpServer(command=("false",), start_timeout_s=20)])
    with pytest.raises(EnvironmentFailure, match="'false' did not answer"):
        play(environment, "5")


def test_a_server_that_dies_in_a_call_is_no_fault_of_the_model(tmp_path):
    pytest.importorskip("mcp")
    from training_gym.environments.tools import McpServer

    (tmp_path / "server.py").write_text(SERVER)
    command = (sys.executable, str(tmp_path / "server.py"))
    env = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    environment = ToolEnvironment(mcp=[McpServer(command=command, env=env)])
    with pytest.raises(EnvironmentFailure, match="died in a call"):
        play(environment, calling(("whisper", '{"text": "die"}')), "done")
