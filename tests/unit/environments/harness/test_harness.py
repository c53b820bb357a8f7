"""Black-box harnesses: real processes that talk to the real gateway, here and in a sandbox."""

import asyncio
import contextlib
import os
import runpy
import signal
import sys
from pathlib import Path

import pytest

from training_gym.environments.harness import HarnessEnvironment
from training_gym.environments.loading import load_environment
from training_gym.models.weights import load_codec
from training_gym.models.weights.tiny import byte_tokenizer
from training_gym.rollouts.attempts import Attempt, Limits
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.rollouts.seats import SampledPlayers
from training_gym.rollouts.services import Services
from training_gym.sandboxes.local import LocalProvider
from training_gym.spec.code import Code
from training_gym.spec.episodes import Counters
from training_gym.spec.errors import SandboxError
from training_gym.spec.sampling import Sampling
from training_gym.spec.sandboxes import SandboxSpec
from training_gym.spec.tasks import Task
from training_gym.testing.scripted_sampler import ScriptedSampler

TASK = Task(id="t1", prompt="Say it.", answer="it", metadata={"level": 3}, split_key="t")

TUTORIALS = Path(__file__).parents[4] / "tutorials"

AGENT = """
import json, os, sys, urllib.request

def ask(messages, **more):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "any", "messages": messages, **more}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
         "Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]

messages = [{"role": "user", "content": sys.argv[1]}]
for _ in range(int(sys.argv[2])):
    reply = ask(messages)
    messages += [{"role": "assistant", "content": reply["content"]},
                 {"role": "user", "content": "More."}]
    print(reply["content"])
open("answer.txt", "w").write(reply["content"])
if len(sys.argv) > 3:
    sys.exit(int(sys.argv[3]))
"""


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    folder = tmp_path_factory.mktemp("codec")
    byte_tokenizer((), 2048, chat_template=True).save_pretrained(folder)
    return load_codec(folder)


@pytest.fixture
def play(codec):
    def run(environment, script=("one", "two", "three"), provider=None, members=1, **limits):
        async def main():
            services = Services(provider=lambda name: provider)
            sampler = ScriptedSampler(codec, script)
            runner = EpisodeRunner(
                SampledPlayers(sampler, codec, seed=1),
                environment,
                seed=1,
                limits=Limits(**{"max_turns": 4, "timeout_s": 60.0, **limits}),
                services=services,
            )
            attempts = [Attempt(TASK, member, 0, "train", "g") for member in range(members)]
            try:
                return await runner.play_group(attempts, Sampling(max_tokens=8), Counters())
            finally:
                await services.close()

        return asyncio.run(main())

    return run


def harness(*arguments, **settings):
    command = (sys.executable, "agent.py", "$prompt", *arguments)
    return HarnessEnvironment(command=command, files={"agent.py": AGENT}, **settings)


def test_what_a_harness_samples_is_the_episodes(play):
    (episode,) = play(harness("2"))
    assert (episode.outcome.status, episode.outcome.reason) == ("finished", "")
    assert [m.text for m in episode.messages] == ["Say it.", "one", "More.", "two"]
    assert len(episode.trajectories) == 1
    assert episode.trajectories[0].num_sampled == len("one") + len("two") + 2
    assert episode.outcome.artifacts == {"requests": 2, "exit_code": 0, "output": "one\ntwo\n"}


def test_episodes_side_by_side_have_keys_and_records_of_their_own(play):
    answers = {member: f"m{member}" for member in range(4)}
    episodes = play(harness("2"), lambda prompt, key: answers[key.member], members=4)
    for member, episode in enumerate(episodes):
        assert [m.text for m in episode.messages[1::2]] == [f"m{member}"] * 2


def test_a_limit_that_a_harness_meets_truncates(play):
    (episode,) = play(harness("3"), max_turns=2)
    assert (episode.outcome.status, episode.outcome.reason) == ("truncated", "2 turns")
    assert episode.trajectories[0].num_sampled == len("one") + len("two") + 2


def test_a_harness_that_fails_after_an_answer_is_the_models_failure(play):
    (episode,) = play(harness("1", "3"))
    assert episode.outcome.status == "model_failed"
    assert episode.outcome.reason == "the harness ended with exit code 3: one"


def test_a_harness_that_never_asks_is_a_failure_of_infrastructure(play):
    environment = HarnessEnvironment(command=("sh", "-c", "echo no module; exit 1"))
    (episode,) = play(environment)
    assert episode.outcome.status == "infrastructure_failed"
    assert "exit code 1: no module; it asked the policy nothing" in episode.outcome.reason
    (episode,) = play(HarnessEnvironment(command=("no-such-program",)))
    assert "'no-such-program' cannot be started" in episode.outcome.reason


def test_names_are_filled_in_and_few_variables_handed_on(play, monkeypatch):
    monkeypatch.setenv("RUN_SECRET", "hidden")
    monkeypatch.setenv("WANTED", "given")
    script = 'echo "$$LEVEL $$WANTED ${level} $task_id [$$RUN_SECRET]"; cat; cat note; exit 1'
    environment = HarnessEnvironment(
        command=("sh", "-c", script),
        env={"LEVEL": "L$level"},
        env_from=["WANTED"],
        stdin="<$prompt>",
        files={"note": "key=$key"},
    )
    (episode,) = play(environment)
    output = episode.outcome.artifacts["output"]
    assert output.startswith("L3 given 3 t1 []\n<Say it.>key=tg-")
    (episode,) = play(HarnessEnvironment(command=("echo", "$nothing")))
    assert "names what the task has not: 'nothing'" in episode.outcome.reason


def test_a_harness_that_hangs_is_ended_with_all_it_started(play, tmp_path):
    pid = tmp_path / "pid"
    environment = HarnessEnvironment(
        command=("sh", "-c", f"sleep 60 & echo $$! > {pid}; wait"), timeout_s=1.0
    )
    (episode,) = play(environment)
    assert episode.outcome.status == "truncated"
    assert episode.outcome.reason == "the harness took over 1 s"
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
        state = Path(f"/proc/{int(pid.read_text())}/stat").read_text().split()[2]
        assert state == "Z", signal.SIGKILL


def test_it_travels_as_source():
    code = Code.of(harness("2", sandbox=SandboxSpec()))
    assert Code(ref=code.ref, kwargs=code.kwargs).load() == harness("2", sandbox=SandboxSpec())


def test_inside_a_sandbox_it_reaches_the_gateway_through_the_tunnel(play):
    provider = LocalProvider()
    try:
        asyncio.run(provider.probe())
    except SandboxError:
        pytest.skip("no local sandboxes here")
    environment = HarnessEnvironment(
        command=("python3", "agent.py", "$prompt", "2"),
        files={"agent.py": AGENT},
        sandbox=SandboxSpec(),
        leaves=["answer.txt"],
    )
    (episode,) = play(environment, provider=LocalProvider())
    assert (episode.outcome.status, episode.outcome.reason) == ("finished", "")
    assert [m.text for m in episode.messages] == ["Say it.", "one", "More.", "two"]
    assert list(episode.outcome.artifacts["submission"]["files"]) == ["answer.txt"]


def test_the_tutorials_agent_is_rewarded_for_one_word(codec):
    tutorial = runpy.run_path(str(TUTORIALS / "black_box_agent.py"))
    config, reward = tutorial["config"], tutorial["one_word"]
    task = Task(id="c", prompt="", answer="red blue", metadata={"kind": "color"}, split_key="c")
    answers = {0: ("Blue.",), 1: ("It is blue", "Reds"), 2: ("Not sure", "Ask Bo")}

    def answer(prompt, key):
        return answers[key.member][key.turn]

    async def main():
        services = Services(provider=lambda name: None)
        runner = EpisodeRunner(
            SampledPlayers(ScriptedSampler(codec, answer), codec, seed=1),
            load_environment(config.environment),
            seed=1,
            limits=Limits(max_turns=4, timeout_s=60.0),
            services=services,
        )
        attempts = [Attempt(task, member, 0, "train", "g") for member in answers]
        try:
            return await runner.play_group(attempts, Sampling(max_tokens=32), Counters())
        finally:
            await services.close()

    episodes = asyncio.run(main())
    assert [len(episode.messages) for episode in episodes] == [2, 4, 4]
    assert [episode.forks for episode in episodes] == [0, 0, 0]
    values = [reward(episode)["reward"] for episode in episodes]
    assert values == pytest.approx([1.0, 1.0, 0.1])
