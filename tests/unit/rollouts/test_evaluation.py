import asyncio

import pytest

from training_gym.environments.single_turn import SingleTurn
from training_gym.rollouts.attempts import Limits
from training_gym.rollouts.evaluation import evaluate
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.rollouts.seats import SampledPlayers
from training_gym.rollouts.statistics import paired_difference
from training_gym.spec.episodes import Score
from training_gym.spec.messages import user
from training_gym.spec.sampling import Sampling
from training_gym.spec.tasks import Task
from training_gym.testing.scripted_sampler import ScriptedSampler

TASKS = [Task(id=f"t{n}", prompt=(user(str(n)),), answer=n, split_key=str(n)) for n in range(4)]


@pytest.fixture
def played(codec, counters):
    def go(score, samples=2, step=0):
        sampler = ScriptedSampler(codec, lambda prompt, key: f"{key.task}.{key.member}")
        runner = EpisodeRunner(
            SampledPlayers(sampler, codec, seed=3), SingleTurn(), seed=3, limits=Limits(4, 60)
        )

        async def judge(episodes):
            return [episode.changed(score=score(episode)) for episode in episodes]

        found = asyncio.run(
            evaluate(
                "held_out",
                TASKS,
                runner,
                judge,
                samples=samples,
                sampling=Sampling(max_tokens=20),
                counters=counters.changed(optimizer_step=step),
            )
        )
        return found, sampler

    return go


def test_a_tasks_samples_are_averaged_first(played):
    found, _ = played(lambda e: Score(value=float(e.member), components={"c": e.answer}))
    assert found.task_means == {f"t{n}": 0.5 for n in range(4)}
    assert found.component_means == {"c": 1.5}
    assert (found.num_missing, len(found.episodes), found.interval.count) == (0, 8, 4)
    assert [episode.completion for episode in found.episodes[:3]] == ["t0.0", "t0.1", "t1.0"]


def test_what_was_not_judged_is_left_out_and_counted(played):
    def score(episode):
        if episode.task.id == "t1" or (episode.task.id, episode.member) == ("t2", 0):
            return None
        return Score(value=1.0)

    found, _ = played(score)
    assert found.task_means == {"t0": 1.0, "t2": 1.0, "t3": 1.0}
    assert found.num_missing == 3


def test_two_evaluations_draw_the_same_numbers_and_differ_in_their_ids(played):
    early, sampler = played(lambda e: Score(value=0.0))
    late, again = played(lambda e: Score(value=0.0), step=9)
    assert [call.key for call in sampler.calls] == [call.key for call in again.calls]
    assert {call.key.stream for call in sampler.calls} == {"eval:held_out"}
    ids = {episode.id for episode in (*early.episodes, *late.episodes)}
    assert len(ids) == 16


def test_pairing_is_by_task(played):
    before, _ = played(lambda e: Score(value=float(e.answer)))
    after, _ = played(lambda e: None if e.answer == 0 else Score(value=e.answer + 0.25))
    found = paired_difference(before.task_means, after.task_means)
    assert (found.mean, found.low, found.high, found.count) == (0.25, 0.25, 0.25, 3)
