"""Harbor tasks played: by tools in the task's sandbox, and by a harness; graded in a fork."""

import asyncio
import sys

import pytest

from training_gym import data
from training_gym.environments.harbor import HarborEnvironment, Terms
from training_gym.environments.harness import HarnessEnvironment
from training_gym.models.weights import load_codec
from training_gym.models.weights.tiny import byte_tokenizer
from training_gym.rollouts.attempts import Attempt, Limits
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.rollouts.seats import SampledPlayers
from training_gym.spec.code import Code
from training_gym.spec.datasets import HarborDataset
from training_gym.spec.episodes import Counters
from training_gym.spec.messages import Message, ToolCall
from training_gym.spec.sampling import Sampling
from training_gym.testing.scripted_policy import PlainContext, ScriptedPolicy
from training_gym.testing.scripted_sampler import ScriptedSampler

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="local sandboxes need Linux")

OFFLINE = Terms(base="host", network="none")
FILES = {
    "instruction.md": "Write 42 to answer.txt",
    "task.toml": "",
    "environment/Dockerfile": "FROM python:3.12-slim\nWORKDIR /app\nRUN echo seed > seed.txt\n",
    "tests/test.sh": 'cd /app\n[ -e seed.txt ] && [ "$(cat answer.txt)" = 42 ] && r=1 || r=0\n'
    "echo $r > /logs/verifier/reward.txt\n",
}
ASKING = """
import json, os, urllib.request
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps({"model": "m", "messages": [{"role": "user", "content": "?"}]}).encode(),
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
)
said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
open("answer.txt", "w").write(said)
"""


@pytest.fixture
def task(tmp_path):
    for path, text in FILES.items():
        target = tmp_path / "tasks" / "one" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    found = data.load(HarborDataset(path="tasks"), seed=0, root=tmp_path)
    return found.tasks[0]


def calling(command):
    call = ToolCall(id="1", name="shell", arguments=f'{{"command": "{command}"}}')
    return Message(role="assistant", tool_calls=(call,))


@pytest.mark.parametrize(("written", "reward"), [("42", 1.0), ("41", 0.0)])
def test_an_agent_with_tools_is_graded_in_a_fork(task, tmp_path, written, reward):
    environment = HarborEnvironment(terms=OFFLINE, root=str(tmp_path))
    policy = ScriptedPolicy(calling(f"cat /app/seed.txt; echo {written} > /app/answer.txt"), "done")

    async def play():
        try:
            return await environment.run(task, policy, PlainContext())
        finally:
            await environment.aclose()

    outcome = asyncio.run(play())
    assert outcome.score.value == reward
    assert "Write 42 to answer.txt\n\nYou work in /app" in policy.asked[0][-1].text
    assert policy.asked[1][-1].text == "seed\n"
    assert outcome.artifacts["trial"]["steps"][0]["verifier"]["rewards"] == {"reward": reward}


def test_a_harness_works_in_the_tasks_sandbox(task, tmp_path):
    byte_tokenizer((), 2048, chat_template=True).save_pretrained(tmp_path / "codec")
    codec = load_codec(tmp_path / "codec")
    agent = HarnessEnvironment(command=("python3", "agent.py"), files={"agent.py": ASKING})
    environment = HarborEnvironment(harness=agent, terms=OFFLINE, root=str(tmp_path))

    async def play():
        runner = EpisodeRunner(
            SampledPlayers(ScriptedSampler(codec, ["42"]), codec, seed=0),
            environment,
            seed=0,
            limits=Limits(4, 120.0),
        )
        try:
            attempt = Attempt(task, 0, 0, "train", "g")
            return await runner.play(attempt, Sampling(max_tokens=8), Counters())
        finally:
            await runner.close()

    episode = asyncio.run(play())
    assert (episode.outcome.status, episode.outcome.reason) == ("finished", "")
    assert episode.score.value == 1.0
    assert episode.completion == "42"


def test_it_travels_as_source():
    environment = HarborEnvironment(terms=OFFLINE)
    code = Code.of(environment)
    assert Code(ref=code.ref, kwargs=code.kwargs).load().model_dump() == environment.model_dump()


def test_episodes_of_one_task_share_its_environment(task, tmp_path):
    (tmp_path / "tasks/one/environment/Dockerfile").write_text(
        "FROM python:3.12-slim\nWORKDIR /app\nRUN echo seed > seed.txt; date +%N > built.txt\n"
    )
    found = data.load(HarborDataset(path="tasks"), seed=0, root=tmp_path).tasks[0]
    environment = HarborEnvironment(terms=OFFLINE, root=str(tmp_path))

    async def play():
        policies = [ScriptedPolicy(calling("cat /app/built.txt"), "done") for _ in range(3)]
        try:
            await asyncio.gather(*(environment.run(found, p, PlainContext()) for p in policies))
        finally:
            await environment.aclose()
        return [policy.asked[1][-1].text for policy in policies]

    times = asyncio.run(play())
    assert len(set(times)) == 1
    assert times[0].strip().isdigit()
