"""What a batch is made of: which groups are learned from, with which advantages and shares."""

import asyncio

import pytest

from training_gym.data import TaskStream
from training_gym.engines.local.drawing import SamplerStatistics
from training_gym.engines.local.imitation import demonstration
from training_gym.engines.local.learning import PolicyLearner
from training_gym.engines.local.rollout import longest_answer
from training_gym.engines.local.state import Progress
from training_gym.environments.single_turn import SingleTurn
from training_gym.rollouts.attempts import Limits
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.rollouts.seats import SampledPlayers
from training_gym.spec.algorithms import DAPO, GRPO, DrGRPO
from training_gym.spec.episodes import PROMPT, SAMPLED, Episode, Outcome, Score, Trajectory
from training_gym.spec.errors import DataError, EnvironmentFailure
from training_gym.spec.messages import user
from training_gym.spec.recipe import Recipe
from training_gym.spec.sampling import Sampling
from training_gym.spec.tasks import Task
from training_gym.testing.scripted_sampler import ScriptedSampler


class Trainer:
    """Keeps the batches it is given."""

    def __init__(self):
        self.batches = []

    def step(self, batch):
        self.batches.append(batch)
        return {"loss": 0.0}


@pytest.fixture
def learn(codec, compute):
    """One batch; `score(task number, member)` is the reward, None where it cannot be judged."""

    def go(algorithm, score, environment=None, answer="abc", num_tasks=40, **settings):
        made = Recipe(
            **{
                "algorithm": algorithm,
                "prompts_per_batch": 4,
                "group_size": 3,
                "max_response_tokens": 10,
                **settings,
            }
        )
        tasks = [
            Task(id=f"t{n}", prompt=(user(str(n)),), answer=n, split_key=str(n))
            for n in range(num_tasks)
        ]
        script = answer if callable(answer) else lambda prompt, key: answer
        sampler, trainer, seen = ScriptedSampler(codec, script), Trainer(), []
        sampler.statistics = SamplerStatistics()
        players = SampledPlayers(sampler, codec, seed=0)
        runner = EpisodeRunner(players, environment or SingleTurn(), seed=0, limits=Limits(4, 60))

        async def judge(episodes):
            values = [score(e.answer, e.member) for e in episodes]
            return [
                e if v is None else e.changed(score=Score(value=v))
                for e, v in zip(episodes, values, strict=True)
            ]

        learner = PolicyLearner(
            made,
            algorithm,
            tasks=TaskStream(tasks, 0),
            runner=runner,
            judge=judge,
            sampler=sampler,
            trainer=trainer,
            compute=compute,
            on_episode=seen.append,
        )
        progress, metrics = asyncio.run(learner.learn(Progress()))
        return progress, metrics, trainer.batches, seen

    return go


def per_row(batch):
    return [round(advantages[0], 3) for advantages in batch.advantages]


def test_advantages_are_the_groups_own(learn):
    progress, metrics, (batch,), seen = learn(GRPO(), lambda n, member: float(member))
    assert per_row(batch) == [-1.0, 0.0, 1.0] * 4
    assert batch.weights == (1.0,) * 12
    assert (progress.batch, progress.optimizer_step, progress.policy_version) == (1, 1, 1)
    assert (progress.drawn, len(seen)) == (4, 12)
    assert (metrics["reward_mean"], metrics["episodes"], metrics["turns_mean"]) == (1.0, 12.0, 1.0)
    assert (metrics["reward_min"], metrics["reward_max"]) == (0.0, 2.0)


def test_dr_grpo_does_not_divide_by_the_spread(learn):
    _, _, (batch,), _ = learn(DrGRPO(), lambda n, member: 10.0 * member)
    assert per_row(batch) == [-10.0, 0.0, 10.0] * 4


def test_groups_of_equal_rewards_are_left_out_and_counted(learn):
    _, metrics, (batch,), seen = learn(GRPO(), lambda n, member: float(member) * (n % 2))
    assert 0 < len(batch.trajectories) < 12
    assert all(any(per_row(batch)[start : start + 3]) for start in range(0, len(per_row(batch)), 3))
    assert metrics["groups_equal_share"] == 1 - len(batch.trajectories) / 12
    assert len(seen) == 12


def test_equal_groups_are_kept_on_request(learn):
    kept = GRPO(skip_equal_groups=False)
    _, _, (batch,), _ = learn(kept, lambda n, member: 1.0)
    assert per_row(batch) == [0.0] * 12


def test_an_environment_that_fails_everywhere_ends_the_run(learn):
    class Broken:
        async def run(self, task, policy, ctx):
            return {}["x"]

    with pytest.raises(EnvironmentFailure, match=r"each of the 12 episodes .* KeyError: 'x'"):
        learn(GRPO(), lambda n, member: None, environment=Broken())


def test_a_run_that_ends_so_says_what_the_failure_itself_says_to_do(learn):
    class Unreachable:
        async def run(self, task, policy, ctx):
            raise EnvironmentFailure("the server gave no answer", fix="start the server")

    with pytest.raises(EnvironmentFailure, match="the server gave no answer") as ended:
        learn(GRPO(), lambda n, member: None, environment=Unreachable())
    assert ended.value.fix == "start the server"


def test_an_environment_that_fails_here_and_there_does_not(learn):
    class Flaky:
        async def run(self, task, policy, ctx):
            if task.answer % 2:
                raise ConnectionError
            return await SingleTurn().run(task, policy, ctx)

    _, metrics, _, seen = learn(GRPO(), lambda n, member: float(member), environment=Flaky())
    assert 0 < metrics["infrastructure_failed_share"] < 1
    assert len(seen) == 12


def test_with_nothing_to_learn_the_weights_stay(learn):
    progress, metrics, batches, _ = learn(GRPO(), lambda n, member: 1.0)
    assert batches == []
    assert (progress.batch, progress.optimizer_step, progress.policy_version) == (1, 0, 0)
    assert metrics["groups_equal_share"] == 1.0


def test_an_episode_without_score_is_dropped_not_zero(learn):
    _, metrics, (batch,), _ = learn(
        GRPO(normalize_by_std=False), lambda n, member: None if member == 0 else float(member)
    )
    assert per_row(batch) == [-0.5, 0.5] * 4
    assert metrics["episodes_dropped"] == 4.0
    assert metrics["reward_mean"] == 1.5


def test_dynamic_sampling_fills_the_batch_with_groups_that_teach(learn):
    progress, _, (batch,), seen = learn(DAPO(), lambda n, member: float(member) * (n % 2))
    assert len(batch.trajectories) == 12
    assert all(any(per_row(batch)[start : start + 3]) for start in range(0, 12, 3))
    assert progress.drawn == len(seen) // 3 > 4
    assert len({episode.task.id for episode in seen}) == progress.drawn


def test_dynamic_sampling_gives_up(learn):
    given_up = DAPO(max_resampled_batches=2)
    progress, _, batches, seen = learn(given_up, lambda n, member: 1.0)
    assert (batches, progress.drawn, len(seen)) == ([], 12, 36)


def test_overlong_answers_lose_reward_linearly(learn):
    shaped = DAPO(
        normalize_by_std=False,
        overlong_buffer_tokens=4,
        overlong_penalty=1.0,
        aggregation="constant",
    )
    lengths = {0: "a" * 5, 1: "a" * 7, 2: "a" * 9}  # and the end of the turn; the limit is 10
    _, metrics, (batch,), _ = learn(
        shaped, lambda n, member: 1.0, answer=lambda prompt, key: lengths[key.member]
    )
    # Penalties 0, 0.5 and 1.
    assert per_row(batch) == [0.5, 0.0, -0.5] * 4
    assert metrics["reward_mean"] == 1.0  # what is reported is the reward itself


def test_the_limit_is_the_one_that_sampling_had(learn):
    shaped = DAPO(normalize_by_std=False, overlong_buffer_tokens=4)
    _, _, (batch,), _ = learn(
        shaped,
        lambda n, member: 1.0,
        answer=lambda prompt, key: "a" * (3 + 2 * key.member),
        sampling=Sampling(max_tokens=8),
        max_response_tokens=8,
    )
    assert per_row(batch) == [0.5, 0.0, -0.5] * 4


def test_overlong_is_about_a_turn_not_an_episode():
    flags = (PROMPT, SAMPLED, SAMPLED, PROMPT, SAMPLED, SAMPLED, SAMPLED, PROMPT, SAMPLED)
    path = Trajectory(
        token_ids=(1,) * 9, flags=flags, logprobs=(0.0,) * 9, versions=(0,) * 9, prompt_length=1
    )
    task = Task(id="t", prompt="", split_key="t")
    assert longest_answer(Episode(id="e", task=task, group="g", trajectories=(path,))) == 3
    assert longest_answer(Episode(id="e", task=task, group="g")) == 0


def test_groups_are_dealt_out_to_several_updates(learn):
    progress, _, batches, _ = learn(
        GRPO(), lambda n, member: float(member), optimizer_steps_per_batch=2
    )
    assert [len(batch.trajectories) for batch in batches] == [6, 6]
    assert (progress.batch, progress.optimizer_step, progress.policy_version) == (1, 2, 2)
    played = {batch.trajectories[0].token_ids for batch in batches}
    assert len(played) == 2


def test_fewer_groups_than_updates_make_fewer_updates(learn):
    progress, _, batches, _ = learn(
        GRPO(),
        lambda n, member: float(member),
        num_tasks=9,
        prompts_per_batch=2,
        optimizer_steps_per_batch=4,
    )
    assert len(batches) == progress.optimizer_step == 2


class Forked:
    """Two turns whose histories differ: two trajectories of one episode."""

    async def run(self, task, policy, ctx):
        await policy.chat(task.prompt)
        await policy.chat([user("something else entirely")])
        return Outcome()


def test_an_episode_weighs_the_same_however_often_it_forked(learn):
    answers = {0: "abcde", 1: "a"}  # 6 and 2 tokens with the end of the turn
    _, metrics, (batch,), _ = learn(
        GRPO(),
        lambda n, member: float(member),
        environment=Forked(),
        answer=lambda prompt, key: answers[key.turn],
    )
    assert batch.weights == (0.75, 0.25) * 12
    assert per_row(batch) == [-1.0, -1.0, 0.0, 0.0, 1.0, 1.0] * 4
    assert metrics["response_tokens_mean"] == 8.0


def test_nothing_to_begin_from_is_refused(codec):
    with pytest.raises(DataError, match="empty prompt"):
        demonstration(Task(id="t", prompt="", answer="x", split_key="t"), codec)
