"""`make_plan`: every open choice of a definition decided for one model on one machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from training_gym.planning.demands import require_machine, require_use
from training_gym.planning.memory import Shape, computed_bytes, has_apple, on_accelerator
from training_gym.planning.nearest import refusal
from training_gym.planning.search import Limits, fit, limits_of, longest_answer
from training_gym.spec.plan import Architecture, Machine, Origin, Plan
from training_gym.spec.recipe import LocalEngine
from training_gym.spec.run import RunSpec

ONE_THREAD_PARAMETERS = 20_000_000
"""Below this, threads wait for each other longer than they compute."""


def make_plan(
    run: RunSpec,
    architecture: Architecture,
    machine: Machine,
    origins: Mapping[str, Origin],
    *,
    longest_prompt_tokens: int | None = None,
    evaluated_episodes: int | None = None,
) -> Plan:
    """Decide every open choice of `run`, or raise `PlanError` naming what does not fit.

    Args:
        run: The definition; what is set in it is kept.
        architecture: The model's.
        machine: Where it will run.
        origins: Origin of every leaf of `run`; what is decided here becomes the planner's.
        longest_prompt_tokens: No prompt is longer than this, where that is known.
        evaluated_episodes: Episodes of the largest evaluation, where that is known.
    """
    require_machine(run, machine, origins)
    limits = limits_of(run, architecture, machine, longest_prompt_tokens)
    require_use(run, limits, origins, evaluated_episodes)
    found = fit(run, architecture, machine, limits)
    if found is None:
        raise refusal(run, architecture, machine, longest_prompt_tokens)
    shape, memory = found
    recipe, engine = _open_recipe(run, shape), _open_engine(run, architecture, machine, shape)
    decided = [f"recipe.{name}" for name in recipe] + [f"recipe.engine.{name}" for name in engine]
    filled = run.recipe.changed(engine=run.recipe.engine.changed(**engine), **recipe)
    return Plan(
        run=run.changed(recipe=filled),
        origins={**origins, **dict.fromkeys(decided, "planner")},
        architecture=architecture,
        machine=machine,
        memory=memory,
        slots=shape.slots,
        token_budget=shape.token_budget,
        max_sequence_tokens=shape.sequence_tokens,
        notes=(*_notes(limits, shape, longest_prompt_tokens), *_idle(filled.engine)),
    )


def _open_recipe(run: RunSpec, shape: Shape) -> dict[str, Any]:
    """Values for the recipe's open fields."""
    if run.recipe.max_prompt_tokens is not None:
        return {}
    return {"max_prompt_tokens": max(1, shape.sequence_tokens - longest_answer(run))}


def _open_engine(
    run: RunSpec, architecture: Architecture, machine: Machine, shape: Shape
) -> dict[str, Any]:
    """Values for the engine's open fields."""
    engine = run.recipe.engine
    values: dict[str, Any] = {}
    if engine.device == "auto":
        values["device"] = _device(machine, on_device=on_accelerator(engine, machine))
    if engine.dtype == "auto":
        values["dtype"] = "bfloat16" if computed_bytes(engine, machine) == 2 else "float32"
    if engine.threads is None:
        small = architecture.num_parameters < ONE_THREAD_PARAMETERS
        values["threads"] = 1 if small else max(machine.cpu_cores // engine.data_parallel, 1)
    if engine.slots is None:
        values["slots"] = shape.slots
    if engine.token_budget is None:
        values["token_budget"] = shape.token_budget
    return values


def _device(machine: Machine, *, on_device: bool) -> str:
    if on_device:
        return "cuda"
    return "mps" if has_apple(machine) else "cpu"


def _notes(limits: Limits, shape: Shape, longest_prompt_tokens: int | None) -> Iterator[str]:
    """What was given up to fit, for people."""
    if shape.sequence_tokens < limits.sequences[0]:
        known = "" if longest_prompt_tokens is None else "; some prompts may be left out"
        yield (
            f"sequences are limited to {shape.sequence_tokens} tokens instead of "
            f"{limits.sequences[0]} to fit the memory{known}"
        )
    if shape.slots < limits.slots[0]:
        yield f"{shape.slots} sequences are sampled at once instead of {limits.slots[0]}"
    if shape.token_budget < limits.budgets[0]:
        yield f"micro-batches hold {shape.token_budget} tokens instead of {limits.budgets[0]}"


def _idle(engine: LocalEngine) -> Iterator[str]:
    """What was asked for and has no effect for what the planner chose."""
    if engine.spin_threads and engine.threads == 1:
        yield "spin_threads has no effect: one CPU thread is planned, which waits for no other"
