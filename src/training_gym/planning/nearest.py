"""When nothing fits: which term stands in the way, and the nearest change with which it fits."""

from __future__ import annotations

import math
from collections.abc import Iterator

from training_gym.planning.memory import Shape, available_gib, estimate_memory, on_accelerator
from training_gym.planning.search import fit, limits_of, smallest
from training_gym.spec.errors import PlanError
from training_gym.spec.plan import Architecture, Machine
from training_gym.spec.recipe import Lora
from training_gym.spec.run import RunSpec

LEAST_ANSWER_TOKENS = 16

SIZES_TRIED = 64
"""Machines looked at, each as large as the one before would have had to be."""


def refusal(
    run: RunSpec, architecture: Architecture, machine: Machine, longest_prompt_tokens: int | None
) -> PlanError:
    """Why `run` cannot be planned, with the first change that would mend it."""
    limits = limits_of(run, architecture, machine, longest_prompt_tokens)
    memory = estimate_memory(run, architecture, machine, smallest(limits))
    on_device = on_accelerator(run.recipe.engine, machine)
    where = "on the accelerator" if on_device else "of memory"
    enough = _enough_gib(run, architecture, machine, smallest(limits))
    other = "an accelerator with" if on_device else "a machine with"
    free = "" if on_device else " of free memory"
    binding = getattr(memory, f"{memory.binding}_gib")
    return PlanError(
        f"training {run.model} needs at least {memory.total_gib:.1f} GiB {where} "
        f"({memory.binding.replace('_', ' ')}: {binding:.1f}), "
        f"{memory.available_gib:.1f} GiB can be used",
        fix=_nearest(run, architecture, machine, longest_prompt_tokens)
        or ("" if enough is None else f"take {other} {enough} GiB{free}, or ") + "a smaller model",
    )


def _enough_gib(
    run: RunSpec, architecture: Architecture, machine: Machine, shape: Shape
) -> int | None:
    """Whole GiB of a machine's memory, or of its accelerator's, with which the shape would fit.

    What vLLM takes grows with the accelerator: None where no size is enough.
    """
    engine = run.recipe.engine
    name = "accelerator_memory_gib" if on_accelerator(engine, machine) else "memory_gib"
    share = available_gib(engine, machine.changed(**{name: 1.0}))
    for _ in range(SIZES_TRIED):
        memory = estimate_memory(run, architecture, machine, shape)
        if memory.total_gib <= memory.available_gib:
            return int(getattr(machine, name))
        machine = machine.changed(**{name: math.ceil(memory.total_gib / share)})
    return None


def _nearest(
    run: RunSpec, architecture: Architecture, machine: Machine, longest_prompt_tokens: int | None
) -> str | None:
    """The first change, in words, with which a shape fits."""
    for words, changed in _changes(run):
        try:
            limits = limits_of(changed, architecture, machine, longest_prompt_tokens)
        except PlanError:
            continue
        if fit(changed, architecture, machine, limits) is not None:
            return words
    return None


def _changes(run: RunSpec) -> Iterator[tuple[str, RunSpec]]:
    """Changes to try, from the one that costs least to the one that costs most."""
    freed = _opened(run)
    if freed is not run:
        asked = [
            name
            for name in ("slots", "token_budget")
            if getattr(run.recipe.engine, name) is not None
        ]
        asked += ["max_prompt_tokens"] if run.recipe.max_prompt_tokens else []
        yield f"leave {' and '.join(asked)} to the planner", freed
    for tokens in _shorter(run.recipe.max_response_tokens):
        yield f"lower max_response_tokens to {tokens}", _answering(freed, tokens)
    if run.recipe.adapter is None:
        adapted = freed.changed(recipe=freed.recipe.changed(adapter=Lora()))
        yield "train an adapter instead: recipe=Recipe(adapter=Lora(), …)", adapted
        for tokens in _shorter(run.recipe.max_response_tokens):
            yield (
                f"train an adapter (adapter=Lora()) and lower max_response_tokens to {tokens}",
                _answering(adapted, tokens),
            )


def _opened(run: RunSpec) -> RunSpec:
    """The run with every choice that the planner can make left to it."""
    engine = run.recipe.engine
    if engine.slots is None and engine.token_budget is None and not run.recipe.max_prompt_tokens:
        return run
    opened = engine.changed(slots=None, token_budget=None)
    return run.changed(recipe=run.recipe.changed(engine=opened, max_prompt_tokens=None))


def _answering(run: RunSpec, tokens: int) -> RunSpec:
    return run.changed(recipe=run.recipe.changed(max_response_tokens=tokens))


def _shorter(tokens: int) -> Iterator[int]:
    while tokens // 2 >= LEAST_ANSWER_TOKENS:
        tokens //= 2
        yield tokens
