"""Groups played ahead: none is ever older than the bound, none is lost, none is thrown away."""

import asyncio
import random

import pytest

from training_gym.data import TaskStream
from training_gym.engines.local.ahead import Ahead
from training_gym.engines.local.collecting import OnPolicy
from training_gym.engines.local.groups import Groups
from training_gym.engines.local.rollout import lag_metrics
from training_gym.engines.local.state import Progress
from training_gym.spec.algorithms import DAPO, GRPO
from training_gym.spec.episodes import SAMPLED, Episode, Score, Trajectory
from training_gym.spec.errors import CheckpointError
from training_gym.spec.recipe import Recipe
from training_gym.spec.tasks import Task

TASKS = [Task(id=f"t{n}", prompt="p", answer=n, split_key=str(n)) for n in range(50)]


class World:
    """A policy whose version is `version`, and a runner whose episodes last as long as told."""

    def __init__(self, ticks):
        self.ticks, self.version, self.learning = ticks, 0, False
        self.started, self.started_while_learning = [], 0

    def drawn_by(self, visit):
        return self.version

    async def play_group(self, attempts, sampling, counters):
        visit = attempts[0].visit
        self.started.append(visit)
        self.started_while_learning += self.learning
        versions = []
        for _ in range(self.ticks(visit)):
            versions.append(self.drawn_by(visit))
            await asyncio.sleep(0)
        count = len(versions)
        path = Trajectory(
            token_ids=(1,) * count,
            flags=(SAMPLED,) * count,
            logprobs=(-1.0,) * count,
            versions=tuple(versions),
            prompt_length=0,
        )
        return [
            Episode(
                id=attempt.id,
                task=attempt.task,
                group=attempt.group,
                member=attempt.member,
                trajectories=(path,),
                score=Score(value=float(attempt.member)),
                counters=counters,
            )
            for attempt in attempts
        ]


async def as_scored(episodes):
    return episodes


def recipe(**settings):
    return Recipe(**{"prompts_per_batch": 3, "group_size": 2, "algorithm": GRPO(), **settings})


def groups_of(world, made):
    return Groups(made, made.algorithm, runner=world, judge=as_scored)


async def train(world, made, progress, *, until=None, train_ticks=5, tasks=None):
    """Batches as the learner collects them; the place reached and what was learned from."""
    groups = groups_of(world, made)
    stream = tasks or TaskStream(TASKS, 0)
    collector = Ahead(groups, stream) if made.max_staleness else OnPolicy(groups, stream)
    batches = []
    while progress.batch < (until or made.num_steps):
        rollout, progress = await collector.collect(progress)
        batches.append((progress, rollout))
        world.learning = True
        for left in range(made.updates_per_batch, 0, -1):
            collector.training(progress, left)
            for _ in range(train_ticks):
                await asyncio.sleep(0)
            world.version += 1
            progress = progress.after(policy_version=world.version)
        collector.training(progress, 0)
        world.learning = False
        progress = collector.position(progress).after(batch=progress.batch + 1)
    await collector.close()
    return progress, batches


def visits(batches):
    return [int(e.group.split("-")[1]) for _, r in batches for e in r.episodes if e.member == 0]


@pytest.mark.parametrize("seed", range(25))
def test_whatever_lasts_how_long_the_bound_holds_and_nothing_is_lost(seed):
    rng = random.Random(seed)
    made = recipe(
        num_steps=8,
        prompts_per_batch=rng.randint(1, 5),
        max_staleness=rng.randint(1, 4),
        optimizer_steps_per_batch=rng.randint(1, 2),
    )
    lengths = {}
    world = World(lambda v: lengths.setdefault(v, rng.choice([1, 2, 3, 10, rng.randint(1, 80)])))
    progress, batches = asyncio.run(train(world, made, Progress(), train_ticks=rng.randint(1, 9)))
    for position, rollout in batches:
        assert rollout.num_groups == made.prompts_per_batch
        assert not rollout.stale
        lags = lag_metrics(rollout, position.policy_version)
        assert lags["policy_lag_max"] <= made.max_staleness
        assert {e.counters.batch for e in rollout.episodes} == {position.batch}
    # Everything that started was learned from, once, and nothing started in vain.
    total = made.num_steps * made.prompts_per_batch
    assert sorted(visits(batches)) == sorted(world.started) == list(range(total))
    assert progress.pending == ()
    assert world.started_while_learning > 0


def test_the_policy_may_change_while_a_group_is_in_play():
    world = World(lambda visit: 12)
    _, batches = asyncio.run(train(world, recipe(num_steps=5, max_staleness=2), Progress()))
    drawn_by = {
        version
        for _, rollout in batches
        for episode in rollout.episodes
        for version in {len(set(path.versions)) for path in episode.trajectories}
    }
    assert max(drawn_by) > 1
    assert max(lag_metrics(r, p.policy_version)["policy_lag_mean"] for p, r in batches) > 0


def test_a_group_that_takes_long_is_waited_for_not_dropped():
    world = World(lambda visit: 400 if visit == 1 else 2)
    _, batches = asyncio.run(train(world, recipe(num_steps=6, max_staleness=2), Progress()))
    (number,) = (n for n, (_, r) in enumerate(batches) if 1 in visits([(None, r)]))
    assert number == 2  # others went first as long as the bound allowed
    assert sorted(visits(batches)) == list(range(18))


def test_strictly_on_policy_nothing_starts_while_the_policy_learns():
    world = World(lambda visit: 3)
    _, batches = asyncio.run(train(world, recipe(num_steps=3), Progress()))
    assert world.started_while_learning == 0
    assert [lag_metrics(r, p.policy_version)["policy_lag_max"] for p, r in batches] == [0, 0, 0]


def test_within_one_batch_versions_only_the_last_updates_are_overlapped():
    """With as many updates as versions are allowed, a group starts when its lag is sure to fit."""
    world = World(lambda visit: 3)
    made = recipe(num_steps=3, optimizer_steps_per_batch=3, max_staleness=1)
    _, batches = asyncio.run(train(world, made, Progress()))
    assert world.started_while_learning == 2 * 3
    assert max(lag_metrics(r, p.policy_version)["policy_lag_max"] for p, r in batches) == 1


def test_what_was_in_play_at_a_kill_is_played_again():
    made = recipe(num_steps=6, max_staleness=2)
    lengths = random.Random(3)
    world = World(lambda visit: lengths.randint(1, 30))
    progress, before = asyncio.run(train(world, made, Progress(), until=3))
    assert progress.pending
    kept = Progress.read(progress.model_dump(mode="json"))
    resumed = World(lambda visit: lengths.randint(1, 30))
    resumed.version = kept.policy_version
    stream = TaskStream(TASKS, 0)
    stream.restore(kept.tasks)
    last, after = asyncio.run(train(resumed, made, kept, tasks=stream))
    assert resumed.started[: len(kept.pending)] == [visit.number for visit in kept.pending]
    assert sorted(visits(before) + visits(after)) == list(range(18))
    assert last.pending == ()
    tasks = {e.group.split("-")[1]: e.task.id for _, r in before + after for e in r.episodes}
    undisturbed = asyncio.run(train(World(lambda v: 2), made, Progress()))[1]
    assert tasks == {e.group.split("-")[1]: e.task.id for _, r in undisturbed for e in r.episodes}


def test_a_task_that_is_no_longer_there_is_refused():
    with pytest.raises(CheckpointError, match="none is called 'gone'"):
        TaskStream(TASKS, 0).named("gone")


def test_an_episode_beyond_the_bound_is_counted_and_replaced():
    """As a sampler that serves old weights would make it."""
    made = recipe(num_steps=3, max_staleness=1)

    class Outdated(World):
        def drawn_by(self, visit):
            return 0 if visit == 7 else self.version

    _, batches = asyncio.run(train(Outdated(lambda visit: 1), made, Progress()))
    stale = [episode for _, rollout in batches for episode in rollout.stale]
    assert {episode.group.split("-")[1] for episode in stale} == {"7"}
    assert all(rollout.num_groups == 3 for _, rollout in batches)
    shares = [lag_metrics(r, p.policy_version)["stale_dropped_share"] for p, r in batches]
    assert shares == [0.0, 0.0, 0.25]


def test_dynamic_sampling_draws_on_and_what_is_left_over_is_learned_from_later():
    made = recipe(num_steps=4, max_staleness=1, algorithm=DAPO())
    world = World(lambda visit: 1 + visit % 3)

    async def judge(episodes):
        dull = int(episodes[0].group.split("-")[1]) % 2
        return [e.changed(score=Score(value=0.0)) if dull else e for e in episodes]

    async def go():
        groups = Groups(made, made.algorithm, runner=world, judge=judge)
        collector, progress, counts = Ahead(groups, TaskStream(TASKS, 0)), Progress(), []
        while progress.batch < made.num_steps:
            rollout, progress = await collector.collect(progress)
            counts.append((len(rollout.groups), rollout.num_groups))
            collector.training(progress, 1)
            world.version += 1
            progress = progress.after(policy_version=world.version)
            collector.training(progress, 0)
            progress = collector.position(progress).after(batch=progress.batch + 1)
        await collector.close()
        return counts

    counts = asyncio.run(go())
    assert [informative for informative, _ in counts] == [3, 3, 3, 3]
    assert sum(played for _, played in counts) > 16


def test_what_an_episode_raises_ends_the_run():
    def fail(visit):
        if visit == 4:
            raise ZeroDivisionError
        return 2

    with pytest.raises(ZeroDivisionError):
        asyncio.run(train(World(fail), recipe(num_steps=4, max_staleness=2), Progress()))


@pytest.mark.parametrize(("bound", "at_least"), [(1, 1.6), (2, 1.6)])
def test_waiting_for_environments_is_hidden_behind_training(bound, at_least):
    """Turns of the event loop stand for time: playing takes 30 of them, an update 30."""

    def turns(made):
        async def go():
            world, count = World(lambda visit: 30), 0

            async def clock():
                nonlocal count
                while True:
                    count += 1
                    await asyncio.sleep(0)

            ticking = asyncio.ensure_future(clock())
            await train(world, made, Progress(), train_ticks=30)
            ticking.cancel()
            return count

        return asyncio.run(go())

    strict = turns(recipe(num_steps=12))
    overlapped = turns(recipe(num_steps=12, max_staleness=bound))
    assert strict / overlapped > at_least
