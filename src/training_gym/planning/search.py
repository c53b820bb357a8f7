"""The search for a shape: the roomiest one that fits, in a fixed order of what is given up first.

Smaller micro-batches cost the least, then shorter sequences down to comfortable prompts, then
fewer slots, and only then still shorter sequences. What the user set is never given up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from training_gym.planning.memory import Shape, estimate_memory, on_accelerator, samples
from training_gym.spec.errors import PlanError
from training_gym.spec.plan import Architecture, Machine, MemoryEstimate
from training_gym.spec.run import RunSpec

COMFORTABLE_PROMPT_TOKENS = 1024
"""Prompts are cut below this only when nothing else is left to give up."""

LEAST_PROMPT_TOKENS = 32

LEAST_BUDGET_TOKENS = 256
"""Smaller micro-batches would save nothing: one sequence is about as long."""

CPU_SLOTS, CPU_BUDGET_TOKENS = 64, 2048
DEVICE_SLOTS, DEVICE_BUDGET_TOKENS = 256, 16384
"""More sequences, or tokens in a micro-batch, do not make the machine faster."""


@dataclass(frozen=True)
class Limits:
    """Bounds of the search; numbers the user set are the only choice."""

    slots: tuple[int, ...]
    budgets: tuple[int, ...]
    sequences: tuple[int, ...]
    """Longest sequences to try, in tokens, longest first."""
    comfortable: int
    """Sequence length down to which slots matter more."""


def limits_of(
    run: RunSpec, architecture: Architecture, machine: Machine, longest_prompt_tokens: int | None
) -> Limits:
    """What definition, model and machine leave open; raises `PlanError` if they leave nothing."""
    engine = run.recipe.engine
    on_device = on_accelerator(engine, machine)
    at_once = -(-run.recipe.episodes_per_batch // engine.data_parallel)
    slots = min(at_once, DEVICE_SLOTS if on_device else CPU_SLOTS)
    budget = DEVICE_BUDGET_TOKENS if on_device else CPU_BUDGET_TOKENS
    longest, least = _sequence_bounds(run, architecture, longest_prompt_tokens)
    answers = longest_answer(run)
    return Limits(
        slots=(engine.slots,) if engine.slots else tuple(_halves(slots if samples(run) else 1, 1)),
        budgets=(engine.token_budget,)
        if engine.token_budget
        else tuple(_halves(budget, LEAST_BUDGET_TOKENS)),
        sequences=tuple(_halves(longest, least)),
        comfortable=min(longest, COMFORTABLE_PROMPT_TOKENS + answers),
    )


def fit(
    run: RunSpec, architecture: Architecture, machine: Machine, limits: Limits
) -> tuple[Shape, MemoryEstimate] | None:
    """The first shape, in the order of preference, whose predicted peak is available."""
    for shape in _shapes(limits):
        memory = estimate_memory(run, architecture, machine, shape)
        if memory.total_gib <= memory.available_gib:
            return shape, memory
    return None


def smallest(limits: Limits) -> Shape:
    """The least that could be asked for."""
    return Shape(limits.slots[-1], limits.budgets[-1], limits.sequences[-1])


def longest_answer(run: RunSpec) -> int:
    """Tokens the policy may sample in one turn, evaluations included."""
    asked = [run.recipe.sampling.max_tokens]
    asked += [e.sampling.max_tokens for e in run.evaluations if e.sampling is not None]
    return max(run.recipe.max_response_tokens, *(tokens or 0 for tokens in asked))


def _sequence_bounds(
    run: RunSpec, architecture: Architecture, longest_prompt_tokens: int | None
) -> tuple[int, int]:
    """Longest and shortest sequence length worth planning for."""
    context = architecture.max_context_tokens
    answer = longest_answer(run)
    asked = run.recipe.max_prompt_tokens
    if (asked or 1) + answer > context:
        raise _beyond_context(run, answer, context)
    room = context - answer
    prompt = asked or min(room, longest_prompt_tokens or room)
    shortest = (asked or min(prompt, LEAST_PROMPT_TOKENS)) + answer
    if run.environment is None:
        return prompt + answer, shortest
    # Every turn adds an answer and what the environment says to it, about as long again.
    return min(context, prompt + 2 * answer * run.recipe.max_turns), shortest


def _beyond_context(run: RunSpec, answer: int, context: int) -> PlanError:
    asked = run.recipe.max_prompt_tokens
    if asked is None or asked >= context:
        name, value = (
            ("max_response_tokens", answer) if asked is None else ("max_prompt_tokens", asked)
        )
        return PlanError(
            f"{name} = {value}, but {run.model} holds {context} tokens in all",
            fix=f"lower it to less than {context}, such as {context // 2}",
        )
    return PlanError(
        f"max_prompt_tokens {asked} + max_response_tokens {answer} = {asked + answer}, "
        f"but {run.model} holds {context} tokens in all",
        fix=f"lower max_prompt_tokens to {context - answer}"
        if answer < context
        else f"lower max_response_tokens to {context - asked}",
    )


def _shapes(limits: Limits) -> Iterator[Shape]:
    """Every shape in the order of preference."""
    long = [tokens for tokens in limits.sequences if tokens >= limits.comfortable]
    short = [tokens for tokens in limits.sequences if tokens < limits.comfortable]
    for lengths in (long, short):
        for slots in limits.slots:
            for tokens in lengths:
                for budget in limits.budgets:
                    yield Shape(slots, budget, tokens)


def _halves(start: int, least: int) -> Iterator[int]:
    """`start`, half of it and so on; `least` comes last."""
    while start > least:
        yield start
        start //= 2
    yield least
