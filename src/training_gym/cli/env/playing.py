"""Episodes of a definition's environment against whoever shall play them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_gym.cli.wording import options_named

if TYPE_CHECKING:
    from training_gym.launch import TrainConfig
    from training_gym.rollouts.evaluation import Judge
    from training_gym.rollouts.runner import EpisodeRunner
    from training_gym.spec.episodes import Episode
    from training_gym.spec.run import RunSpec
    from training_gym.spec.tasks import Task


_OPTIONS = {
    "Endpoint.base_url": "--endpoint",
    "Endpoint.model": "--model",
    "Endpoint.key_env": "--key-env",
}


@dataclass(frozen=True)
class Asked:
    """What the command line asked for."""

    episodes: int
    model: str
    endpoint: str
    key_env: str | None
    side: Any
    at_once: int
    score: bool


async def play(
    config: TrainConfig,
    asked: Asked,
    show: Callable[[Episode], None],
    say: Callable[[str], None],
) -> list[Episode]:
    """Play, judge and show episode by episode, in the order of the tasks."""
    from training_gym import data
    from training_gym.jobs.define import define
    from training_gym.jobs.source import pack, unpack

    with tempfile.TemporaryDirectory(prefix="training-gym-") as staging:
        folder = Path(staging)
        definition = define(config, config._origin, folder, config._user_paths)
        archive, sha256 = pack(definition.files)
        source = folder / "source"
        unpack(archive, source, sha256)
        spec = definition.run
        assert spec.dataset is not None
        found = data.load(spec.dataset, seed=spec.recipe.seed, side=asked.side, root=source)
        tasks = [found.tasks[n % len(found.tasks)] for n in range(asked.episodes)]
        async with _runner(spec, asked, say) as runner, _judge(spec, asked, source) as judge:
            return await _all(runner, judge, spec, tasks, asked.at_once, show)


async def _all(
    runner: EpisodeRunner,
    judge: Judge,
    spec: RunSpec,
    tasks: list[Task],
    at_once: int,
    show: Callable[[Episode], None],
) -> list[Episode]:
    from training_gym.rollouts.attempts import Attempt
    from training_gym.spec.episodes import Counters

    room = asyncio.Semaphore(at_once)
    sampling = spec.recipe.sampling
    if sampling.max_tokens is None:
        sampling = sampling.changed(max_tokens=spec.recipe.max_response_tokens)

    async def one(number: int, task: Task) -> Episode:
        async with room:
            attempt = Attempt(task, 0, number, "env", f"env-{number}")
            played = await runner.play(attempt, sampling, Counters())
            return (await judge([played]))[0]

    waiting = [asyncio.create_task(one(*pair)) for pair in enumerate(tasks)]
    episodes = []
    try:
        for each in waiting:
            episodes.append(await each)
            show(episodes[-1])
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return episodes


@contextlib.asynccontextmanager
async def _runner(
    spec: RunSpec, asked: Asked, say: Callable[[str], None]
) -> AsyncIterator[EpisodeRunner]:
    """Who plays: a server's model, or one of this machine."""
    from training_gym.rollouts.attempts import Limits
    from training_gym.rollouts.runner import EpisodeRunner
    from training_gym.spec.endpoints import Endpoint

    recipe = spec.recipe
    shared: dict[str, Any] = {
        "environment": _environment(spec),
        "seed": recipe.seed,
        "limits": Limits(recipe.max_turns, recipe.episode_timeout_s, recipe.max_episode_tokens),
    }
    async with contextlib.AsyncExitStack() as stack:
        if asked.endpoint:
            from training_gym.models.endpoint import EndpointPolicy
            from training_gym.rollouts.endpoints import EndpointPlayers

            with options_named(_OPTIONS):
                where = Endpoint(base_url=asked.endpoint, model=asked.model, key_env=asked.key_env)
            policy = await stack.enter_async_context(EndpointPolicy(where))
            runner = EpisodeRunner(EndpointPlayers(policy), **shared)
        else:
            say(f"loading {asked.model}")
            _set_environment()
            from training_gym.engines.local.players import local_table

            table = await stack.enter_async_context(
                local_table(asked.model, recipe, slots=asked.at_once, say=say)
            )
            runner = EpisodeRunner(table.players, services=table.services, **shared)
        stack.push_async_callback(runner.close)
        yield runner


def _set_environment() -> None:
    """What the engine's process needs set before torch is imported."""
    import os

    from training_gym.engines.local.engine import ENVIRONMENT

    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def _environment(spec: RunSpec) -> Any:
    from training_gym.environments.loading import load_environment

    return load_environment(spec.environment)


@contextlib.asynccontextmanager
async def _judge(spec: RunSpec, asked: Asked, source: Path) -> AsyncIterator[Judge]:
    """What scores them: the run's reward, else the environment's own word."""
    from training_gym import data
    from training_gym.rewards import RewardRunner
    from training_gym.rollouts.judging import EpisodeJudge

    assert spec.dataset is not None
    reward = spec.reward or data.own_reward(spec.dataset)
    if reward is None or not asked.score:
        yield EpisodeJudge(None, lambda *_: None)
        return
    recipe = spec.recipe
    async with RewardRunner(
        reward,
        timeout_s=recipe.reward_timeout_s,
        workers=recipe.reward_workers,
        import_timeout_s=recipe.reward_import_timeout_s,
        source_root=source,
    ) as rewards:
        yield EpisodeJudge(rewards, lambda *_: None)
