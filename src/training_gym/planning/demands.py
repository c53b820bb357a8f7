"""What a definition asks of its machine that is not there, and what nothing could use.

The machine is the one that is planned for. Only what somebody set is held against the run.
"""

from __future__ import annotations

from collections.abc import Mapping

from training_gym.planning.memory import has_apple, has_cuda, on_accelerator, samples
from training_gym.planning.search import Limits
from training_gym.spec.algorithms import GivenAnswers
from training_gym.spec.errors import PlanError
from training_gym.spec.plan import Machine, Origin
from training_gym.spec.run import RunSpec


def require_machine(run: RunSpec, machine: Machine, origins: Mapping[str, Origin]) -> None:
    """Raise `PlanError` where the machine lacks the device, the devices or the cores asked for."""
    _require_device(run.recipe.engine.device, machine)
    _require_processes(run, machine)
    threads = run.recipe.engine.threads
    if threads is not None and _is_asked("threads", origins) and threads > machine.cpu_cores:
        raise PlanError(
            f"engine.threads = {threads}, but the machine has {machine.cpu_cores} CPU cores for "
            "this process",
            fix=f"lower it to {machine.cpu_cores}, or leave threads to the planner",
        )


def require_use(
    run: RunSpec,
    limits: Limits,
    origins: Mapping[str, Origin],
    evaluated_episodes: int | None,
) -> None:
    """Raise `PlanError` where more slots or rows of logits are asked for than can ever be filled.

    Args:
        run: The definition.
        limits: What the planner may choose from for it.
        origins: Origin of every leaf of `run`.
        evaluated_episodes: Episodes of the largest evaluation; None: unknown.
    """
    engine = run.recipe.engine
    most = most_at_once(run, evaluated_episodes)
    if engine.slots and _is_asked("slots", origins) and most is not None and engine.slots > most:
        raise PlanError(
            f"engine.slots = {engine.slots}, but at most {most} episodes are ever in play at once",
            fix=f"lower it to {most}, or leave slots to the planner",
        )
    chunk, tokens = engine.logprob_chunk_tokens, max(limits.budgets[0], limits.sequences[0])
    if _is_asked("logprob_chunk_tokens", origins) and chunk > tokens:
        raise PlanError(
            f"engine.logprob_chunk_tokens = {chunk}, but a micro-batch has at most {tokens} tokens",
            fix=f"lower it to {tokens}, or leave logprob_chunk_tokens out",
        )


def most_at_once(run: RunSpec, evaluated_episodes: int | None) -> int | None:
    """Most sequences that can ask to be sampled at one time; None: that is not known.

    It is not where an environment plays, which may ask for several at once, nor where there are
    evaluations of unknown size.
    """
    if run.environment or any(each.environment for each in run.evaluations) or not samples(run):
        return None
    if run.evaluations and evaluated_episodes is None:
        return None
    recipe = run.recipe
    # Those played ahead go on during an evaluation; no batch further ahead could be learned from.
    batches = 0 if isinstance(recipe.algorithm, GivenAnswers) else 1 + recipe.max_staleness
    training, evaluated = batches * recipe.episodes_per_batch, evaluated_episodes or 0
    return training + evaluated if recipe.max_staleness else max(training, evaluated)


def _require_device(device: str, machine: Machine) -> None:
    if device == "mps" and not has_apple(machine):
        raise PlanError(
            "engine.device = 'mps', but the machine has no Apple accelerator (MPS)",
            fix="leave device out, or set 'cuda'" if has_cuda(machine) else "leave device out",
        )
    if device == "cuda" and not has_cuda(machine):
        raise PlanError(
            "engine.device = 'cuda', but the machine has no CUDA device",
            fix="leave device out; if there is one, nvidia-smi must find it and "
            "CUDA_VISIBLE_DEVICES must not hide it",
        )


def _require_processes(run: RunSpec, machine: Machine) -> None:
    """Raise `PlanError` where processes that train together would have to share a device."""
    engine = run.recipe.engine
    on_device = on_accelerator(engine, machine) or engine.device == "mps"
    devices = max(machine.accelerators, 1) if on_device else machine.cpu_cores
    if engine.data_parallel > devices:
        kind = "accelerators" if on_device else "CPU cores"
        raise PlanError(
            f"engine.data_parallel = {engine.data_parallel}, but the machine has {devices} {kind}",
            fix=f"lower it to {devices}",
        )


def _is_asked(name: str, origins: Mapping[str, Origin]) -> bool:
    return origins.get(f"recipe.engine.{name}") in ("user", "recipe")
