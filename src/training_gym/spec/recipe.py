"""How to train: algorithm, batch shape, lengths, optimizer, engine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from training_gym.spec.algorithms import (
    CISPO,
    DAPO,
    DPO,
    GRPO,
    GSPO,
    PPO,
    RLOO,
    SFT,
    Algorithm,
    Distill,
    DrGRPO,
    GivenAnswers,
    PolicyGradient,
    ReinforcePlusPlus,
    SimPO,
)
from training_gym.spec.drift import DriftLimits
from training_gym.spec.errors import SpecError, did_you_mean
from training_gym.spec.sampling import Sampling
from training_gym.spec.settings import Settings


class Lora(Settings):
    """A low-rank adapter instead of all weights (Hu et al. 2021, arXiv:2106.09685)."""

    rank: int = Field(16, ge=1, le=2**16)
    """Columns of the two small matrices."""
    alpha: float = Field(32, gt=0, allow_inf_nan=False)
    """What they add is scaled by alpha / rank."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of their inputs left out in training."""
    target_modules: tuple[str, ...] = Field(("all-linear",), min_length=1)
    """Names of the linear layers, or `all-linear`."""


class AdamW(Settings):
    """AdamW (Loshchilov & Hutter 2017, arXiv:1711.05101) with a schedule and clipping."""

    learning_rate: float = Field(1e-6, gt=0, allow_inf_nan=False)
    """Of all trained weights, after the warm-up."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of the gradient's mean."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay of the gradient's squares."""
    epsilon: float = Field(1e-8, gt=0, allow_inf_nan=False)
    """Added to the root of the squares."""
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Share of the weights taken off per step and learning rate."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradients are scaled down to this global L2 norm."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What the learning rate does after the warm-up."""
    warmup_steps: int = Field(0, ge=0)
    """Optimizer steps over which the learning rate rises from zero."""
    final_fraction: float = Field(0.0, ge=0, le=1)
    """Share of the learning rate left at the last step under `linear` and `cosine`."""


class CheckpointPolicy(Settings):
    """When to save and what to keep."""

    every: int | None = Field(10, ge=1)
    """Batches between checkpoints, which is what a crash can cost; None: the last one only."""
    keep: int = Field(2, ge=1)
    """Newest checkpoints that are kept."""


class Vllm(Settings):
    """Sampling by vLLM in the engine's process, where the package is installed.

    It keeps a second copy of the weights and a cache of its own; each update is copied into it. A
    run with it does not repeat bit for bit.
    """

    kind: Literal["vllm"] = "vllm"
    memory_fraction: float = Field(0.4, gt=0, lt=1)
    """Share of the accelerator's memory for its weights and cache."""
    cpu_cache_gib: int = Field(2, ge=1)
    """GiB of its cache where there is no accelerator."""
    eager: bool = False
    """Run without compiling and without CUDA graphs: starts sooner, samples slower."""


def _as_sampler(value: Any) -> Any:
    if isinstance(value, str):
        if value not in ("embedded", "vllm"):
            raise SpecError(
                f"no sampler is called {value!r}", fix=did_you_mean(value, ["embedded", "vllm"])
            )
        return Vllm() if value == "vllm" else None
    return value


class LocalEngine(Settings):
    """The embedded engine: in process, one machine."""

    kind: Literal["local"] = "local"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """auto: CUDA where there is one, else Apple's, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of matrix products; weights and moments stay float32. auto: bfloat16 on CUDA."""
    threads: int | None = Field(None, ge=1, le=4096)
    """CPU threads; None: the physical cores this process may use."""
    spin_threads: bool = False
    """Let CPU threads spin while they wait for each other: up to a fifth faster on cores that
    nothing else uses, several times slower on cores that something does."""
    data_parallel: int = Field(1, ge=1, le=4096)
    """Processes that sample and train together, one to each GPU; on a CPU they share its threads.
    Optimizer state and gradients are sharded over them."""
    graphs: bool = True
    """On CUDA: record decoding steps of plain models and replay them, which launches hundreds of
    kernels at once."""
    slots: int | None = Field(None, ge=1, le=2**20)
    """Sequences sampled at once; None: the planner decides."""
    token_budget: int | None = Field(None, ge=64, le=2**31)
    """Tokens of one packed micro-batch; None: the planner decides."""
    logprob_chunk_tokens: int = Field(256, ge=16, le=2**31)
    """Rows of full-vocabulary logits that exist at once."""
    deterministic: bool = True
    """Bit-identical repetition on CPU; refuse kernels that are not."""
    sampler: Annotated[Vllm | None, BeforeValidator(_as_sampler)] = None
    """Who samples the policy: `Vllm()`; None or `embedded`: this engine itself. Fixed models and
    `env run` always sample with this engine itself."""


ENGINES: dict[str, type[Settings]] = {"local": LocalEngine}


def _as_engine(value: Any) -> Any:
    if isinstance(value, str):
        if value not in ENGINES:
            raise SpecError(f"no engine is called {value!r}", fix=did_you_mean(value, ENGINES))
        return ENGINES[value]()
    return value


EngineSpec = Annotated[LocalEngine, BeforeValidator(_as_engine)]


_ALGORITHM_NAMES: dict[str, type[Settings]] = {
    "grpo": GRPO,
    "dr-grpo": DrGRPO,
    "dapo": DAPO,
    "gspo": GSPO,
    "cispo": CISPO,
    "rloo": RLOO,
    "reinforce++": ReinforcePlusPlus,
    "ppo": PPO,
    "distill": Distill,
    "sft": SFT,
    "dpo": DPO,
    "simpo": SimPO,
}


def _no_name(value: Any) -> Any:
    if isinstance(value, str):
        kind = _ALGORITHM_NAMES.get(value.lower().replace("_", "-"))
        wanted = "one of " + ", ".join(f"{k.__name__}()" for k in _ALGORITHM_NAMES.values())
        if kind is not None:
            wanted = "Distill(teacher=…)" if kind is Distill else f"{kind.__name__}()"
        raise SpecError(
            f"algorithm = {value!r} is a name, not an algorithm",
            fix=f"give {wanted}",
        )
    return value


IMPORT_TIMEOUT_S = 120.0


class Recipe(Settings):
    """How to train. Every number has a meaning on any engine that accepts it."""

    name: str = "custom"
    """For people."""
    algorithm: Annotated[Algorithm, BeforeValidator(_no_name)] = Field(default_factory=GRPO)
    """What is optimised."""
    engine: EngineSpec = Field(default_factory=LocalEngine)
    """What trains, or its name."""
    adapter: Lora | None = None
    """None: all weights are trained."""
    num_steps: int = Field(20, ge=1, le=10**9)
    """Batches to collect and learn from."""
    prompts_per_batch: int = Field(4, ge=1, le=2**20)
    """Tasks in one batch."""
    group_size: int = Field(8, ge=1, le=2**16)
    """Episodes of each task in one batch."""
    optimizer_steps_per_batch: int = Field(1, ge=1, le=2**20)
    """Updates of the weights made from one batch."""
    max_staleness: int = Field(0, ge=0, le=10**6)
    """Policy versions by which a token may be older than the policy that begins to learn from it:
    as far as it allows, the next batches are played meanwhile. 0: strictly on-policy."""
    max_prompt_tokens: int | None = Field(None, ge=1)
    """Longer prompts are left out, counted and reported; None: what the context allows."""
    max_response_tokens: int = Field(256, ge=1, le=2**31)
    """Tokens the policy may sample in one turn."""
    max_turns: int = Field(32, ge=1, le=10**6)
    """Turns after which an episode is truncated."""
    max_episode_tokens: int | None = Field(None, ge=1)
    """Tokens sampled in all turns together, after which an episode is truncated; None: what the
    turns allow."""
    episode_timeout_s: float = Field(600, gt=0)
    """Seconds after which an episode is truncated."""
    drift: DriftLimits = Field(default_factory=DriftLimits)
    """How often a harness may send a history other than the one that was sampled."""
    sampling: Sampling = Field(default_factory=Sampling)
    """How training episodes are drawn."""
    optimizer: AdamW = Field(default_factory=AdamW)
    """How the weights are changed."""
    checkpoints: CheckpointPolicy = Field(default_factory=CheckpointPolicy)
    """When to save, and what to keep."""
    reward_timeout_s: float = Field(30, gt=0)
    """Seconds after which a reward is killed."""
    reward_workers: int = Field(1, ge=1, le=4096)
    """Processes that run synchronous rewards."""
    reward_import_timeout_s: float = Field(IMPORT_TIMEOUT_S, gt=0)
    """Seconds that each of them may take to start and import the reward's file."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Of everything random: the same seed repeats the run."""
    max_restarts: int = Field(0, ge=0, le=10**6)
    """Times the job starts again by itself, from the newest checkpoint, after a crash."""

    @model_validator(mode="after")
    def _answers_have_one_limit(self) -> Recipe:
        asked = self.sampling.max_tokens
        if asked not in (None, self.max_response_tokens):
            raise ValueError(
                f"sampling.max_tokens={asked} is another limit than max_response_tokens="
                f"{self.max_response_tokens}: give max_response_tokens={asked} alone"
            )
        return self

    @property
    def episodes_per_batch(self) -> int:
        """Episodes of one batch."""
        return self.prompts_per_batch * self.group_size

    @property
    def updates_per_batch(self) -> int:
        """Most updates of the weights made from one batch."""
        if isinstance(self.algorithm, GivenAnswers):
            return 1
        passes = self.algorithm.passes if isinstance(self.algorithm, PolicyGradient) else 1
        return passes * self.optimizer_steps_per_batch


def _of_answers(name: str, algorithm: Algorithm, learning_rate: float) -> Recipe:
    return Recipe(
        name=name,
        algorithm=algorithm,
        group_size=1,
        prompts_per_batch=16,
        optimizer=AdamW(learning_rate=learning_rate),
    )


RECIPES: dict[str, Recipe] = {
    "grpo": Recipe(name="grpo"),
    "dr-grpo": Recipe(name="dr-grpo", algorithm=DrGRPO()),
    "dapo": Recipe(name="dapo", algorithm=DAPO()),
    "gspo": Recipe(name="gspo", algorithm=GSPO()),
    "cispo": Recipe(name="cispo", algorithm=CISPO()),
    "rloo": Recipe(name="rloo", algorithm=RLOO()),
    "reinforce++": Recipe(
        name="reinforce++", algorithm=ReinforcePlusPlus(), prompts_per_batch=32, group_size=1
    ),
    "reinforce++-baseline": Recipe(
        name="reinforce++-baseline", algorithm=ReinforcePlusPlus(group_baseline=True)
    ),
    "ppo": Recipe(name="ppo", algorithm=PPO(), prompts_per_batch=32, group_size=1),
    "sft": _of_answers("sft", SFT(), 1e-5),
    "dpo": _of_answers("dpo", DPO(), 1e-6),
    "simpo": _of_answers("simpo", SimPO(), 1e-6),
}
"""Recipes by name, for `recipe="grpo"`."""


def _as_recipe(value: Any) -> Any:
    if value is None:
        return RECIPES["grpo"]
    if isinstance(value, str):
        if value not in RECIPES:
            raise SpecError(f"no recipe is called {value!r}", fix=did_you_mean(value, RECIPES))
        return RECIPES[value]
    return value


RecipeSpec = Annotated[Recipe, BeforeValidator(_as_recipe)]
"""A field that takes a `Recipe` or the name of one."""
