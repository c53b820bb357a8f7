"""Every snippet of the pages about agents runs as it stands there."""

import asyncio
import json
import re
from pathlib import Path

import httpx
import pytest

from training_gym.environments import imported
from training_gym.rollouts.policy import SampledPolicy
from training_gym.rollouts.record import TokenRecord
from training_gym.spec.messages import user
from training_gym.spec.sampling import SampleKey, Sampling
from training_gym.spec.tasks import Task
from training_gym.testing.scripted_policy import PlainContext, ScriptedPolicy
from training_gym.testing.scripted_sampler import ScriptedSampler

DOCS = Path(__file__).parents[3] / "docs"
SNIPPETS = {
    f"{page}-{number}": text
    for page in ("gateway", "environments")
    for number, text in enumerate(
        re.findall(r"^```python\n(.*?)^```$", (DOCS / f"{page}.md").read_text(), re.M | re.S)
    )
}


def run(text):
    found = {"__name__": "snippet"}
    exec(compile(text, "snippet", "exec"), found)
    return found


@pytest.fixture
def surroundings(tmp_path, monkeypatch):
    """What the pages assume: a file of rows, and a taskset of verifiers."""
    rows = tmp_path / "data" / "train.jsonl"
    rows.parent.mkdir()
    asked = {"input": [{"role": "user", "content": "Count."}]}
    rows.write_text(json.dumps({"responses_create_params": asked}) + "\n")
    monkeypatch.chdir(tmp_path)
    taskset = [{"prompt": "1 + 1?", "idx": 0}]
    monkeypatch.setattr(imported, "verifiers_rows", lambda name, limit=None: taskset)


@pytest.mark.parametrize("name", SNIPPETS)
def test_it_runs(name, surroundings):
    assert run(SNIPPETS[name])


def snippet(word):
    (text,) = (text for text in SNIPPETS.values() if word in text)
    return run(text)


def test_the_gateways_first_snippet_serves_a_harness(codec):
    sampler = ScriptedSampler(codec, ["Hi."])
    own = Sampling(max_tokens=64)
    key = SampleKey(seed=0, task="t")
    policy = SampledPolicy(sampler, codec, TokenRecord(codec), key, own, session="s")

    async def harness(environment):
        base = environment["OPENAI_BASE_URL"]
        head = {"authorization": f"Bearer {environment['OPENAI_API_KEY']}"}
        async with httpx.AsyncClient(headers=head) as client:
            body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
            made = await client.post(f"{base}/chat/completions", json=body)
            assert made.json()["choices"][0]["message"]["content"] == "Hi."
            reward = base.removesuffix("/v1") + "/reward"
            assert (await client.post(reward, json={"value": 0.5})).status_code == 200

    score = asyncio.run(snippet("run_the_harness")["play"](policy, harness))
    assert score.value == 0.5


@pytest.mark.parametrize(
    ("name", "text", "says"), [("Debate", "class Debate", "yes"), ("Simulated", "to_thread", "7")]
)
def test_the_environments_play(name, text, says):
    made = snippet(text)[name]()
    task = Task(id="t", prompt=(user("Go."),), split_key="t")
    ctx = PlainContext(agents={"critic": ScriptedPolicy("no")})
    outcome = asyncio.run(made.run(task, ScriptedPolicy(says), ctx))
    assert outcome.score.value == 1.0
