"""Environments of other projects, played in those projects' own packages where they are here.

`openenv` and `verifiers` are imported by this interpreter; NeMo Gym wants Python 3.12 and is run
by the one that `TRAINING_GYM_NEMO_GYM_PYTHON` names.
"""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from training_gym.environments.imported import (
    NemoGymEnvironment,
    OpenEnvEnvironment,
    VerifiersEnvironment,
    nemo_gym_rows,
    verifiers_rows,
)
from training_gym.spec.code import Code
from training_gym.spec.errors import EnvironmentFailure, SpecError
from training_gym.spec.messages import Message, ToolCall, user
from training_gym.spec.tasks import Task
from training_gym.testing.scripted_policy import PlainContext, ScriptedPolicy

NEMO_PYTHON = os.environ.get("TRAINING_GYM_NEMO_GYM_PYTHON", "")

NEMO_SERVER = """
import sys
from unittest.mock import MagicMock
import uvicorn
from nemo_gym.server_utils import ServerClient
from resources_servers.example_session_state_mgmt import app as example
config = example.StatefulCounterResourcesServerConfig(
    host="127.0.0.1", port=int(sys.argv[1]), entrypoint="", name="counter")
server = example.StatefulCounterResourcesServer(
    config=config, server_client=MagicMock(spec=ServerClient))
uvicorn.run(server.setup_webserver(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""
OPENENV_SERVER = """
import sys
import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

class Guess(Action):
    message: str

class Said(Observation):
    text: str = ""

class Guessing(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def __init__(self):
        super().__init__()
        self._state = State()
    def reset(self, seed=None, episode_id=None, number=7, **rest):
        self.number = number
        return Said(text="Guess a number.")
    def step(self, action, **rest):
        if action.message == str(self.number):
            return Said(text="Right.", reward=1.0, done=True)
        return Said(text="Wrong.", reward=-0.25, done=False)
    @property
    def state(self):
        return self._state

app = create_fastapi_app(Guessing, Guess, Said, max_concurrent_envs=4)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""
TASKSET = """
import verifiers.v1 as vf
from verifiers.v1.types import content_text

__all__ = ["Sums"]

class SumData(vf.TaskData):
    total: int

class Sum(vf.Task[SumData, vf.State]):
    @vf.reward(weight=2.0)
    async def right(self, trace) -> float:
        said = [m for m in trace.messages if m.role == "assistant"]
        return float(bool(said) and str(self.data.total) in content_text(said[-1].content))

class Sums(vf.Taskset[Sum, vf.TasksetConfig]):
    def load(self):
        for a in range(3):
            yield Sum(SumData(prompt=f"What is {a} + 1?", total=a + 1), self.config.task)
"""


@contextlib.contextmanager
def served(python, source):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([python, "-c", source, str(port)], env={"PATH": os.environ["PATH"]})
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            assert process.poll() is None, "the server ended"
            try:
                urllib.request.urlopen(f"{url}/openapi.json", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def openenv():
    pytest.importorskip("openenv")
    with served(sys.executable, OPENENV_SERVER) as url:
        yield url


@pytest.fixture(scope="module")
def nemo_gym():
    if not NEMO_PYTHON:
        pytest.skip("TRAINING_GYM_NEMO_GYM_PYTHON names no interpreter with nemo-gym")
    with served(NEMO_PYTHON, NEMO_SERVER) as url:
        yield url


def asked(**columns):
    return Task(id="t", prompt=(user("Play."),), metadata=columns, split_key="t")


def test_openenv_is_played_until_it_is_done(openenv):
    environment = OpenEnvEnvironment(url=openenv, reset=("number",), sessions=4)
    policies = [ScriptedPolicy("3", str(number)) for number in range(10, 14)]

    async def play():
        plays = zip(policies, range(10, 14), strict=True)
        return await asyncio.gather(
            *(environment.run(asked(number=n), p, PlainContext()) for p, n in plays)
        )

    for outcome, policy in zip(asyncio.run(play()), policies, strict=True):
        assert (outcome.status, outcome.score.value) == ("finished", 0.75)
        assert outcome.score.turns == (-0.25, 1.0)
        assert policy.asked[0][-1].text == "Play.\n\nGuess a number."
        assert policy.asked[1][-1].text == "Wrong."


def test_openenv_actions_as_json(openenv):
    environment = OpenEnvEnvironment(url=openenv, action=None, max_turns=2)
    policy = ScriptedPolicy("no idea", 'I say {"message": "7"}.')
    outcome = asyncio.run(environment.run(asked(), policy, PlainContext()))
    assert outcome.score.turns == (0.0, 1.0)
    assert "no action: give one JSON object" in policy.asked[1][-1].text


def test_an_openenv_server_that_is_gone_is_a_failure_of_infrastructure():
    pytest.importorskip("openenv")
    environment = OpenEnvEnvironment(url="http://127.0.0.1:9")
    with pytest.raises(EnvironmentFailure, match=r"http://127\.0\.0\.1:9 failed") as caught:
        asyncio.run(environment.run(asked(), ScriptedPolicy(), PlainContext()))
    assert "check that it runs" in caught.value.fix


ROW = {
    "responses_create_params": {
        "input": [
            {"role": "developer", "content": "Use the tools."},
            {"role": "user", "content": [{"type": "input_text", "text": "add 1 then add 2"}]},
        ],
        "tools": [
            {
                "type": "function",
                "name": "increment_counter",
                "description": "",
                "strict": True,
                "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}},
            }
        ],
    },
    "expected_count": 6,
    "initial_count": 3,
}


def counting(*arguments):
    calls = [
        ToolCall(id=f"c{n}", name="increment_counter", arguments=text)
        for n, text in enumerate(arguments)
    ]
    return Message(role="assistant", tool_calls=tuple(calls))


@pytest.mark.parametrize(("last", "reward"), [('{"count": 2}', 1.0), ('{"count": 1}', 0.0)])
def test_nemo_gym_verifies_what_its_tools_did(nemo_gym, tmp_path, last, reward):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    (row,) = nemo_gym_rows(tmp_path / "rows.jsonl")
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    metadata = {name: value for name, value in row.items() if name != "prompt"}
    policy = ScriptedPolicy(counting('{"count": 1}', '{"count": '), counting(last), "done")
    environment = NemoGymEnvironment(url=nemo_gym)
    outcome = asyncio.run(environment.run(asked(**metadata), policy, PlainContext()))
    assert (outcome.status, outcome.score.value) == ("finished", reward)
    assert policy.asked[0][-1].text == "add 1 then add 2"
    assert policy.asked[1][-2].text == '{"success":true}'
    assert "no JSON" in policy.asked[1][-1].text
    assert policy.tools[0][0].name == "increment_counter"


def test_a_nemo_gym_server_that_is_gone_is_a_failure_of_infrastructure():
    environment = NemoGymEnvironment(url="http://127.0.0.1:9")
    with pytest.raises(EnvironmentFailure, match="gave no answer to /seed_session"):
        asyncio.run(environment.run(asked(**ROW), ScriptedPolicy(), PlainContext()))


def test_rows_that_are_none_of_nemo_gyms_are_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"question": 1}\n')
    with pytest.raises(SpecError, match="line 1 has no object responses_create_params"):
        list(nemo_gym_rows(tmp_path / "rows.jsonl"))


@pytest.fixture
def sums(tmp_path, monkeypatch):
    pytest.importorskip("verifiers")
    (tmp_path / "training_gym_sums.py").write_text(TASKSET)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "training_gym_sums"


def test_verifiers_rows_name_each_task_by_its_place(sums):
    assert list(verifiers_rows(sums, limit=2)) == [
        {"prompt": "What is 0 + 1?", "idx": 0},
        {"prompt": "What is 1 + 1?", "idx": 1},
    ]


@pytest.mark.slow  # its program gets its packages from a registry the first time
def test_verifiers_plays_its_own_agent_through_the_gateway(sums, tmp_path):
    from training_gym.models.weights import load_codec
    from training_gym.models.weights.tiny import byte_tokenizer
    from training_gym.rollouts.attempts import Attempt, Limits
    from training_gym.rollouts.runner import EpisodeRunner
    from training_gym.rollouts.seats import SampledPlayers
    from training_gym.spec.episodes import Counters
    from training_gym.spec.sampling import Sampling
    from training_gym.testing.scripted_sampler import ScriptedSampler

    byte_tokenizer((), 2048, chat_template=True).save_pretrained(tmp_path / "codec")
    codec = load_codec(tmp_path / "codec")
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    environment = VerifiersEnvironment(taskset=sums, config={"agent": agent})

    async def play():
        runner = EpisodeRunner(
            SampledPlayers(ScriptedSampler(codec, ["It is 2."]), codec, seed=0),
            environment,
            seed=0,
            limits=Limits(4, 300.0),
        )
        try:
            attempt = Attempt(asked(idx=1), 0, 0, "train", "g")
            return await runner.play(attempt, Sampling(max_tokens=16), Counters())
        finally:
            await runner.close()

    episode = asyncio.run(play())
    assert (episode.outcome.status, episode.outcome.reason) == ("finished", "")
    assert (episode.score.value, episode.score.components) == (2.0, {"right": 2.0})
    assert episode.completion == "It is 2."


def test_a_taskset_that_is_not_here_is_named(sums):
    environment = VerifiersEnvironment(taskset="no-such-taskset")
    with pytest.raises(EnvironmentFailure, match="has no environment 'no-such-taskset'"):
        asyncio.run(environment.run(asked(idx=0), ScriptedPolicy(), PlainContext()))


@pytest.mark.parametrize(
    "environment",
    [
        OpenEnvEnvironment(url="http://a"),
        NemoGymEnvironment(url="http://a"),
        VerifiersEnvironment(taskset="a"),
    ],
)
def test_they_travel_as_source(environment):
    code = Code.of(environment)
    assert Code(ref=code.ref, kwargs=code.kwargs).load().model_dump() == environment.model_dump()
