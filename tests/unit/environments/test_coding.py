import asyncio

import pytest

from training_gym.environments.coding import CodingEnvironment
from training_gym.environments.tools import ToolEnvironment
from training_gym.environments.tools.workbench import read_file, shell, write_file
from training_gym.rewards.graders import submission_of
from training_gym.sandboxes.local import LocalProvider
from training_gym.spec.episodes import Episode, Outcome
from training_gym.spec.errors import SandboxError, SpecError
from training_gym.spec.messages import Message, ToolCall
from training_gym.spec.sandboxes import ExecResult, SandboxSpec
from training_gym.spec.tasks import Task
from training_gym.testing.fake_sandboxes import FakeProvider
from training_gym.testing.scripted_policy import PlainContext, ScriptedPolicy

GOOD = "```python\ndef f(x):\n    return x + 1\n```"
BAD = "```python\ndef f(x):\n    return x + 2\n```"
TASK = Task(
    id="t",
    prompt="Write f.",
    answer=[{"args": [1], "returns": 2}],
    metadata={"examples": "assert f(3) == 4, f(3)"},
    split_key="t",
)


def running(check):
    """A provider whose runs end as `check(the file)` says; listings name the file."""

    async def run(sandbox, request):
        if request.code:
            return ExecResult(exit_code=0, stdout=b'[["solution.py", 32768]]', tier=sandbox.tier)
        good = check(await sandbox.read_file("solution.py"))
        error = b"" if good else b"AssertionError: 5"
        return ExecResult(exit_code=0 if good else 1, stderr=error, tier=sandbox.tier)

    return FakeProvider(commands=run)


def play(environment, provider, *script, task=TASK):
    policy, ctx = ScriptedPolicy(*script), PlainContext(provider=provider)
    outcome = asyncio.run(environment.run(task, policy, ctx))
    return outcome, policy, ctx


def left(ctx):
    outcome = Outcome(artifacts=ctx.kept)
    episode = Episode(id="e", task=TASK, group="g", outcome=outcome)
    return submission_of(episode, "solution.py").contents()


def test_the_policy_reads_what_failed_and_tries_again():
    provider = running(lambda data: b"x + 1" in data)
    outcome, policy, ctx = play(CodingEnvironment(), provider, BAD, GOOD)
    assert outcome.status == "finished"
    assert "AssertionError: 5" in policy.asked[1][-1].text
    assert ctx.kept["attempts"] == 2
    assert left(ctx) == {"solution.py": b"def f(x):\n    return x + 1\n"}
    assert [line["exit_code"] for line in ctx.lines] == [1, 0]


def test_attempts_run_out_and_the_last_file_is_left():
    outcome, policy, ctx = play(CodingEnvironment(attempts=2), running(lambda _: False), BAD, BAD)
    assert (outcome.status, len(policy.asked)) == ("finished", 2)
    assert b"x + 2" in left(ctx)["solution.py"]


@pytest.fixture
def local():
    provider = LocalProvider()
    try:
        asyncio.run(provider.probe())
    except SandboxError:
        pytest.skip("no local sandboxes here")
    return provider


async def _graded(provider):
    from training_gym.rewards.graders import FunctionCases

    policy, ctx = ScriptedPolicy(BAD, GOOD), PlainContext(provider=provider)
    outcome = await CodingEnvironment().run(TASK, policy, ctx)
    outcome = outcome.changed(artifacts=ctx.kept)
    episode = Episode(id="e", task=TASK, group="g", outcome=outcome)
    try:
        return policy, await FunctionCases(function="f").using(provider)(episode)
    finally:
        await provider.close()


def test_in_a_real_sandbox_and_graded_in_another(local):
    policy, score = asyncio.run(_graded(local))
    assert "AssertionError: 5" in policy.asked[1][-1].text
    assert score.value == 1.0


def calling(name, arguments):
    return Message(role="assistant", tool_calls=(ToolCall(id="1", name=name, arguments=arguments),))


async def _worked(provider):
    environment = ToolEnvironment(
        tools=[shell, read_file, write_file], sandbox=SandboxSpec(), leaves=["."]
    )
    policy = ScriptedPolicy(
        calling("write_file", '{"path": "a.txt", "content": "one"}'),
        calling("shell", '{"command": "cat a.txt; echo two >> a.txt; exit 3"}'),
        calling("read_file", '{"path": "a.txt"}'),
        calling("read_file", '{"path": "none.txt"}'),
        "done",
    )
    ctx = PlainContext(provider=provider)
    try:
        await environment.run(TASK, policy, ctx)
    finally:
        await provider.close()
    return policy, ctx


def test_an_agent_with_a_shell_and_files(local):
    policy, ctx = asyncio.run(_worked(local))
    told = [message.text for message in policy.asked[-1] if message.role == "tool"]
    assert told[0] == "wrote 3 characters"
    assert told[1] == "one\n[exit code 3]"
    assert told[2] == "onetwo\n"
    assert told[3].startswith("error: OSError")
    assert left(ctx) == {"a.txt": b"onetwo\n"}


def test_a_tool_that_wants_a_sandbox_says_so():
    with pytest.raises(SpecError, match="shell works in a sandbox, and the environment has none"):
        play(ToolEnvironment(tools=[shell]), None, "done")
