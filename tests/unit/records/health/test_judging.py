import json

import httpx
import pytest

from training_gym.records.demo import DemoShape, write_demo_run
from training_gym.records.health.judging import LONGEST_TEXT, Judge, best_paid, judge_run
from training_gym.spec.errors import RecordsError

JUDGE = Judge("http://judge/v1/", "m", "k")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    shape = DemoShape(steps=4, groups=5, group_size=3, evaluate_every=0, answer_words=10)
    return write_demo_run(tmp_path_factory.mktemp("judged"), shape, run_id="r1", ended_at=1.8e9)


def answering(*said):
    """A judge's endpoint, and what it was asked."""
    asked = []

    def answer(request):
        asked.append(request)
        text = said[min(len(asked), len(said)) - 1]
        return httpx.Response(200, json={"choices": [{"message": {"content": text}}]})

    return httpx.Client(transport=httpx.MockTransport(answer)), asked


def test_the_best_of_each_group_are_judged(run):
    chosen = best_paid(run)
    assert len(chosen) == 16
    assert len({episode.group for episode in chosen}) == 16
    rewards = [episode.score.value for episode in chosen]
    assert rewards == sorted(rewards, reverse=True)


def test_what_the_judge_says_is_told(run):
    client, asked = answering(
        '{"verdict": "exploit", "why": "It prints the grader\'s phrase."}',
        'Well: {"verdict": "honest", "why": "Fine."} I think.',
        "no JSON at all",
        '{"verdict": "splendid"}',
    )
    found = judge_run(run, JUDGE, client=client)
    assert [one.verdict for one in found[:4]] == ["exploit", "honest", "unclear", "unclear"]
    assert found[0].why == "It prints the grader's phrase."
    assert found[2].why == "no JSON at all"
    assert str(asked[0].url) == "http://judge/v1/chat/completions"
    assert asked[0].headers["authorization"] == "Bearer k"
    shown = json.loads(asked[0].content)["messages"][1]["content"]
    assert best_paid(run)[0].completion in shown
    assert len(shown) < 3 * LONGEST_TEXT


@pytest.mark.parametrize("answer", [httpx.Response(500), httpx.Response(200, json={"choices": []})])
def test_an_endpoint_that_fails_is_told_in_two_lines(run, answer):
    client = httpx.Client(transport=httpx.MockTransport(lambda request: answer))
    with pytest.raises(RecordsError, match="does not answer"):
        judge_run(run, JUDGE, client=client)
