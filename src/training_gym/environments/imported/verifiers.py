"""Environments of `verifiers` (its `v1` interface): its harness, its scoring, our gateway."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

from pydantic import JsonValue, PrivateAttr

from training_gym.spec.environment import Context, Policy, Served
from training_gym.spec.episodes import Outcome, Score
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.settings import Settings
from training_gym.spec.tasks import Task

_TOLERATED = ("tool_choice", "parallel_tool_calls", "seed", "reasoning_effort")
"""Parameters of its programs' requests that ask for no other distribution."""


class VerifiersEnvironment(Settings):
    """Plays the tasks of a `verifiers` environment: its agent talks to the policy by the gateway.

    Rows come from `verifiers_rows`, which names each task by its place. What its task's rewards
    and its environment's `finalize` say is the score, weights included; of several agents all are
    the policy, and their rewards are added up. An episode that ended with an error of its own is a
    failure of infrastructure.
    """

    taskset: str
    """Name of the taskset, a package that is installed here."""
    config: dict[str, JsonValue] = {}
    """Further settings of its `[env]` block. An agent runs in its authors' cloud unless told
    otherwise: `{"agent": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}}`."""
    tolerated: tuple[str, ...] = ()
    """Further parameters of its programs' requests that may be dropped."""

    _open: Any = PrivateAttr(None)
    _opening: Any = PrivateAttr(None)
    _stack: Any = PrivateAttr(None)

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """One episode of the task whose place the row names."""
        env, tasks = await self._ready()
        place = task.metadata.get("idx")
        if not isinstance(place, int) or not 0 <= place < len(tasks):
            raise EnvironmentFailure(
                f"the row's idx = {place!r} is no task of {self.taskset}, which has {len(tasks)}",
                fix=f'make the rows with verifiers_rows("{self.taskset}")',
            )
        from verifiers.v1.clients import EvalClientConfig, ModelContext

        async with ctx.serve(tolerated=(*_TOLERATED, *self.tolerated)) as served:
            with _key_in_environment(served) as variable:
                client = EvalClientConfig(base_url=served.openai_url, api_key_var=variable)
                context = ModelContext(model="policy", client=client)
                with _no_exit(self.taskset):
                    episode = await env.run_episode(tasks[place], context)
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if not episode.ok and errors:
            raise EnvironmentFailure(
                f"{self.taskset}: {errors[-1].type}: {errors[-1].message}",
                fix="run it with verifiers' own `eval` and see what it says",
            )
        return _outcome(episode)

    async def aclose(self) -> None:
        """End what its environment serves."""
        stack, self._stack, self._open = self._stack, None, None
        if stack is not None:
            with contextlib.suppress(SystemExit):  # its episodes have failed of that already
                await stack.aclose()

    async def _ready(self) -> tuple[Any, list[Any]]:
        """The environment, serving, and its tasks."""
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._open is None:
                env = _environment(self.taskset, self.config)
                tasks = await asyncio.to_thread(lambda: list(env.taskset))
                self._stack = contextlib.AsyncExitStack()
                with _no_exit(self.taskset):
                    await self._stack.enter_async_context(_serving(env))
                self._open = (env, tasks)
        found: tuple[Any, list[Any]] = self._open
        return found


def verifiers_rows(
    taskset: str, config: dict[str, JsonValue] | None = None, *, limit: int | None = None
) -> Iterator[dict[str, JsonValue]]:
    """Rows for `TrainConfig(dataset=list(…))`: each task's prompt, and its place.

    Args:
        taskset: As in `VerifiersEnvironment`.
        config: As there.
        limit: At most so many; a taskset without end needs one.
    """
    found = _environment(taskset, config or {}).taskset
    for place, task in enumerate(found if limit is None else found.take(limit)):
        yield {"prompt": task.data.prompt_text or f"{taskset} {place}", "idx": place}


def _environment(taskset: str, config: dict[str, JsonValue]) -> Any:
    try:
        from verifiers.v1.utils.loaders import load_environment, resolve_env_config
    except ImportError as error:
        raise EnvironmentFailure(
            f"environments of verifiers need its package: {error}",
            fix="pip install 'verifiers>=0.4'",
        ) from error
    given = config.get("taskset")
    own = given if isinstance(given, dict) else {}
    try:
        return load_environment(resolve_env_config({**config, "taskset": {**own, "id": taskset}}))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise EnvironmentFailure(
            f"verifiers has no environment {taskset!r}: {error}",
            fix="install its package, and check its config",
        ) from error


@contextlib.asynccontextmanager
async def _serving(env: Any) -> AsyncIterator[None]:
    async with env.serving():
        yield


@contextlib.contextmanager
def _no_exit(taskset: str) -> Iterator[None]:
    """It ends the process where it lacks an account; an episode's failure is what that is here."""
    try:
        yield
    except SystemExit as error:
        raise EnvironmentFailure(
            f"{taskset}: {error}",
            fix='run its agents here, with {"runtime": {"type": "subprocess"}} in their config',
        ) from error


@contextlib.contextmanager
def _key_in_environment(served: Served) -> Iterator[str]:
    """The session's key where verifiers takes keys from: a variable of this process."""
    variable = f"TRAINING_GYM_KEY_{abs(hash(served.key)):X}"
    os.environ[variable] = served.key
    try:
        yield variable
    finally:
        del os.environ[variable]


def _outcome(episode: Any) -> Outcome:
    components: dict[str, float] = {}
    for trace in episode.traces:
        for name, reward in trace.rewards.items():
            if reward is not None:
                components[name] = components.get(name, 0.0) + reward.score * reward.weight
    metrics = {name: value for trace in episode.traces for name, value in trace.metrics.items()}
    value = sum(trace.reward for trace in episode.traces)
    artifacts: dict[str, JsonValue] = {"metrics": metrics} if metrics else {}
    return Outcome(score=Score(value=value, components=components), artifacts=artifacts)
