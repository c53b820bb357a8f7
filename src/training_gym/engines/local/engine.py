"""The embedded engine as the launcher knows it: what it honours, and the job that runs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from training_gym.planning.memory import samples
from training_gym.spec.algorithms import GivenAnswers
from training_gym.spec.engine import Support, SupportReport
from training_gym.spec.job import Job, NodeGroup, Tap
from training_gym.spec.plan import Plan
from training_gym.spec.recipe import Recipe
from training_gym.spec.run import RunSpec

_SAMPLED_ONLY = (
    "group_size",
    "max_turns",
    "max_episode_tokens",
    "episode_timeout_s",
    "drift",
    "optimizer_steps_per_batch",
    "max_staleness",
)
"""Settings that mean nothing where no episodes are played to learn from."""

_EPISODES_ONLY = (
    "sampling",
    "max_response_tokens",
    "reward_timeout_s",
    "reward_workers",
    "reward_import_timeout_s",
)
"""Settings that learning from given answers needs for its evaluations only."""


ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # Threads that wait for each other by spinning lose whole time slices as soon as anything else
    # runs on the machine: with two busy neighbours on two cores sampling is several times slower.
    # What is busy in an hour cannot be seen at the start, so this is the default; who knows that
    # the cores are the run's own says so with `spin_threads`.
    "GOMP_SPINCOUNT": "1000",
    # Large arrays come and go with every layer. In pages of 4 KiB each of them is slowly mapped
    # anew; huge pages cost a tenth of that.
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""What the engine's process needs set before it starts."""


class LocalEngine:
    """Implements `spec.engine.Engine` for one machine, in one process."""

    name = "local"

    def supports(self, run: RunSpec) -> SupportReport:
        """See `spec.engine.Engine`. Settings nobody set are not reported."""
        recipe = run.recipe
        if isinstance(recipe.algorithm, GivenAnswers):
            entries = tuple(_supervised(run))
        else:
            entries = (*_reinforced(recipe), *_single_turn(run), *_overlapped(recipe))
        return SupportReport(
            engine=self.name, entries=(*entries, *_handed_over(run), *_device(recipe))
        )

    def render(self, plan: Plan, run_id: str, attempt: int) -> Job:
        """See `spec.engine.Engine`."""
        return Job(
            run_id=run_id,
            attempt=attempt,
            groups=(NodeGroup(command=("{python}", "-m", "training_gym.engines.local.inside")),),
            env=_environment(plan),
            secrets=plan.run.secrets,
            taps=self.taps(plan),
            signals={
                "stop": "SIGINT",
                "stop_now": "SIGTERM",
                "checkpoint": "SIGUSR1",
                "pause": "SIGTSTP",
                "unpause": "SIGCONT",
            },
            max_restarts=plan.run.recipe.max_restarts,
            leaves_summary=True,
        )

    def taps(self, plan: Plan) -> tuple[Tap, ...]:
        """The engine writes records itself; what it prints becomes logs."""
        return (Tap(source="stdout"), Tap(source="stderr"))


def _environment(plan: Plan) -> dict[str, str]:
    if not plan.run.recipe.engine.spin_threads:
        return ENVIRONMENT
    return {name: value for name, value in ENVIRONMENT.items() if name != "GOMP_SPINCOUNT"}


def _given(recipe: Recipe, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Which of these settings somebody set to more than nothing: 1 and the default ask nothing."""
    for name in names:
        default = Recipe.model_fields[name].get_default(call_default_factory=True)
        value = getattr(recipe, name)
        if name in recipe.model_fields_set and value not in (default, 1):
            yield name, value


def _supervised(run: RunSpec) -> Iterator[Support]:
    recipe = run.recipe
    idle = _SAMPLED_ONLY if run.evaluations else (*_SAMPLED_ONLY, *_EPISODES_ONLY)
    for name, value in _given(recipe, idle):
        yield Support(
            path=f"recipe.{name}",
            verdict="refused",
            reason=f"{name}={value!r:.40} has no effect where answers are given",
            fix=f"leave {name} out",
        )
    if run.reward is not None and not run.evaluations:
        yield Support(
            path="reward",
            verdict="refused",
            reason="given answers need no reward, and there is no evaluation that would use one",
            fix="leave reward out, or add eval_dataset=…",
        )


def _reinforced(recipe: Recipe) -> Iterator[Support]:
    sampling = recipe.sampling
    if sampling.temperature == 0:
        yield Support(
            path="recipe.sampling.temperature",
            verdict="refused",
            reason="temperature=0 gives every episode of a group the same answer: nothing to learn",
            fix="train with temperature=1.0 and set 0 in an Eval's sampling",
        )
    for name, neutral in (("top_p", 1.0), ("top_k", 0), ("min_tokens", 0)):
        value = getattr(sampling, name)
        if value != neutral:
            yield Support(
                path=f"recipe.sampling.{name}",
                verdict="refused",
                reason=f"{name}={value} cuts the distribution that the loss is computed on",
                fix=f"train with {name}={neutral} and set {value} in an Eval's sampling",
            )
    if sampling.form is not None:
        yield Support(
            path="recipe.sampling.form",
            verdict="approximated",
            reason="answers are drawn from what the form allows, and the loss is computed on the "
            "policy without it",
        )
    if recipe.optimizer_steps_per_batch > recipe.prompts_per_batch:
        yield Support(
            path="recipe.optimizer_steps_per_batch",
            verdict="refused",
            reason=f"{recipe.optimizer_steps_per_batch} updates need as many groups, a batch has "
            f"{recipe.prompts_per_batch}",
            fix=f"lower it to {recipe.prompts_per_batch} or raise prompts_per_batch",
        )


def _single_turn(run: RunSpec) -> Iterator[Support]:
    """What has no effect where an episode is one question and its answer."""
    if run.environment or any(each.environment for each in run.evaluations):
        return
    for name, value in _given(run.recipe, ("max_turns", "drift")):
        yield Support(
            path=f"recipe.{name}",
            verdict="refused",
            reason=f"{name}={value!r:.40} has no effect without an environment, which asks "
            "for one answer",
            fix=f"leave {name} out, or name the environment that takes turns",
        )


def _overlapped(recipe: Recipe) -> Iterator[Support]:
    if recipe.max_staleness and recipe.engine.deterministic:
        yield Support(
            path="recipe.max_staleness",
            verdict="refused",
            reason=f"with max_staleness={recipe.max_staleness} the clock decides which policy "
            "draws a token, which deterministic=True rules out",
            fix="set engine=LocalEngine(deterministic=False), or leave max_staleness out",
        )


def _handed_over(run: RunSpec) -> Iterator[Support]:
    """What rules out that vLLM samples, and what of its settings has no effect."""
    engine = run.recipe.engine
    if engine.sampler is None:
        return
    if not samples(run):
        yield Support(
            path="recipe.engine.sampler",
            verdict="refused",
            reason="answers are given and nothing is evaluated: nothing is sampled",
            fix="leave sampler out, or add eval_dataset=…",
        )
    idle = {"cpu": "memory_fraction", "cuda": "cpu_cache_gib"}.get(engine.device)
    if idle is not None and idle in engine.sampler.model_fields_set:
        yield Support(
            path=f"recipe.engine.sampler.{idle}",
            verdict="refused",
            reason=f"{idle} has no effect with device={engine.device!r}",
            fix=f"leave {idle} out",
        )
    if engine.deterministic:
        yield Support(
            path="recipe.engine.sampler",
            verdict="refused",
            reason="what vLLM computes together depends on the clock, which deterministic=True "
            "rules out",
            fix="set engine=LocalEngine(sampler=Vllm(), deterministic=False), or leave sampler out",
        )
    wishes = [run.recipe.sampling, *(e.sampling for e in run.evaluations if e.sampling)]
    if any(sampling.form is not None for sampling in wishes):
        yield Support(
            path="recipe.engine.sampler",
            verdict="refused",
            reason="vLLM in this process holds no answer to a form",
            fix="leave sampler out, or leave the form of answers open",
        )
    if engine.data_parallel > 1:
        yield Support(
            path="recipe.engine.sampler",
            verdict="refused",
            reason=f"vLLM samples in one process, data_parallel={engine.data_parallel} has several",
            fix="leave sampler out, or set data_parallel=1",
        )
    if engine.device == "mps":
        yield Support(
            path="recipe.engine.sampler",
            verdict="refused",
            reason="vLLM has no kernels for device='mps'",
            fix="leave sampler out",
        )


def _device(recipe: Recipe) -> Iterator[Support]:
    engine = recipe.engine
    if engine.spin_threads and engine.threads == 1:
        yield Support(
            path="recipe.engine.spin_threads",
            verdict="refused",
            reason="spin_threads=True has no effect with threads=1, which waits for no other",
            fix="leave spin_threads out, or set threads to what the run has for itself",
        )
    asked = engine.graphs and "graphs" in engine.model_fields_set
    if asked and engine.sampler is not None:
        yield Support(
            path="recipe.engine.graphs",
            verdict="refused",
            reason="graphs=True has no effect where vLLM samples, which records its own",
            fix="leave graphs out; Vllm(eager=False) is what has vLLM record",
        )
    elif asked and engine.device in ("cpu", "mps"):
        yield Support(
            path="recipe.engine.graphs",
            verdict="refused",
            reason=f"graphs=True has no effect with device={engine.device!r}",
            fix="leave graphs out",
        )
    if recipe.engine.deterministic and recipe.engine.device in ("cuda", "mps"):
        yield Support(
            path="recipe.engine.deterministic",
            verdict="approximated",
            reason="only the CPU repeats bit for bit; on an accelerator kernels may vary",
        )
