import asyncio

import pytest

from training_gym.data import load, own_reward
from training_gym.data.entries import create_generator, encode_entry
from training_gym.rewards import RewardRunner
from training_gym.rewards.library import ReasoningGymScore
from training_gym.spec.datasets import GeneratedDataset
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import RewardError
from training_gym.spec.messages import assistant

from .test_library import said

pytest.importorskip("reasoning_gym")


def test_a_generated_dataset_scores_its_own_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path))
    dataset = GeneratedDataset(name="leg_counting", size=2, arguments={"max_animals": 3})
    tasks = load(dataset, seed=0, root=tmp_path).tasks
    episodes = [
        Episode(
            id=task.id,
            task=task,
            group="g",
            messages=(*task.prompt, assistant(f"So <answer>{answer}</answer>.")),
        )
        for task, answer in zip(tasks, [tasks[0].answer, "none"], strict=True)
    ]

    async def judge():
        reward = own_reward(dataset)
        async with RewardRunner(reward, timeout_s=60, workers=1) as runner:
            return await runner.judge(episodes)

    right, wrong = asyncio.run(judge())
    assert right.score.value == 1
    assert wrong.score.value < 0.1


@pytest.mark.parametrize("name", ["leg_counting", "countdown", "word_sorting"])
def test_an_entry_kept_as_json_scores_as_the_original_does(name):
    entry = create_generator(name, 1, 3, {})[0]
    episode = said(str(entry["answer"]), entry["answer"], entry=encode_entry(entry))
    assert ReasoningGymScore(name=name)(episode) == 1
    for hostile in ("", "\x00", "(" * 10_000, "\ud800", "<answer>", "</answer><answer>"):
        episode = said(hostile, entry["answer"], entry=encode_entry(entry))
        assert 0 <= ReasoningGymScore(name=name)(episode) < 1


def test_other_tasks_are_refused():
    with pytest.raises(RewardError, match="no reasoning-gym entry"):
        ReasoningGymScore(name="leg_counting")(said("7", "7"))
