"""The environments: whether each can be loaded and has the method that plays an episode."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from training_gym.checks.findings import error, raised
from training_gym.checks.subject import Subject
from training_gym.spec.code import Code
from training_gym.spec.errors import GymError
from training_gym.spec.findings import Finding

_FIX = "write an environment as a class with async def run(self, task, policy, ctx)"


def environments_can_play(subject: Subject) -> Iterator[Finding]:
    """`environment.unusable`: it cannot be loaded or made, or lacks an asynchronous `run`."""
    run = subject.run
    told: set[str] = set()
    for code in (run.environment, *(evaluation.environment for evaluation in run.evaluations)):
        if code is not None and (key := code.model_dump_json()) not in told:
            told.add(key)
            yield from _playable(code)


def _playable(code: Code) -> Iterator[Finding]:
    try:
        loaded: Any = code.load()
    except GymError as refused:
        if not isinstance(refused.__cause__, ImportError):  # the job's machine may have more
            yield raised("environment.unusable", refused)
        return
    run = getattr(loaded, "run", None)
    if run is None:
        yield error(
            "environment.unusable", f"{code.ref} has no method run(task, policy, ctx)", _FIX
        )
    elif not inspect.iscoroutinefunction(run):
        yield error("environment.unusable", f"{code.ref}.run is not asynchronous", _FIX)
    elif not _takes_three(run, bound=not isinstance(loaded, type)):
        yield error(
            "environment.unusable",
            f"{code.ref}.run takes {inspect.signature(run)}, and is given a task, a policy and a "
            "context",
            _FIX,
        )
    elif isinstance(loaded, type) and (lacking := _required(loaded)):
        yield error(
            "environment.unusable",
            f"{code.ref} cannot be made without {', '.join(lacking)}",
            f"give an instance: environment={code.name}({lacking[0]}=…)",
        )


def _takes_three(run: Any, *, bound: bool) -> bool:
    """Whether `run` can be called with a task, a policy and a context."""
    try:
        inspect.signature(run).bind(*(["self"] if not bound else []), "task", "policy", "ctx")
    except TypeError:
        return False
    except ValueError:  # it tells nothing of itself
        return True
    return True


def _required(made: type) -> list[str]:
    """Arguments without a default that its constructor asks for."""
    try:
        parameters = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):  # a constructor that tells nothing of itself
        return []
    taken = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty and parameter.kind not in taken
    ]
