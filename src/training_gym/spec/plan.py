"""A recipe with every open choice decided for one model on one set of machines."""

from __future__ import annotations

from typing import Literal

from training_gym.spec.run import RunSpec
from training_gym.spec.settings import Settings

Origin = Literal["default", "recipe", "user", "planner"]


class Machine(Settings):
    """What a machine offers, as facts."""

    cpu_cores: int
    memory_gib: float
    accelerator: str | None = None
    """Product name; None: none."""
    accelerators: int = 0
    accelerator_memory_gib: float = 0.0
    platform: str = "linux"


class Architecture(Settings):
    """What the planner needs to know of a model, from any `config.json` or GGUF header."""

    family: str
    """`model_type` of the configuration."""
    num_parameters: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context_tokens: int
    tied_embeddings: bool
    experts: int = 0
    experts_per_token: int = 0
    adapted_widths: int = 0
    """Inputs plus outputs of all linear layers of the decoder; 0: as a Llama of this shape has."""
    cached_values: int = 0
    """Numbers that one token's keys and values take, over all layers; 0: as above."""
    state_values: int = 0
    """Numbers that one sequence takes however long it is: states of linear attention."""
    active_width: int = 0
    """Width of all feed-forward parts that one token passes, over all layers; 0: as above."""
    companion_parameters: int = 0
    """Of a frozen model held beside it: a reference policy, a teacher."""


class MemoryEstimate(Settings):
    """Predicted peak on the busiest device, in GiB, by what takes it."""

    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    logits_gib: float
    kv_cache_gib: float
    process_gib: float
    """Interpreter, libraries, allocator slack."""
    available_gib: float

    @property
    def total_gib(self) -> float:
        """The sum of all terms."""
        return float(sum(value for name, value in self if name != "available_gib"))

    @property
    def binding(self) -> str:
        """The largest term."""
        terms = {name: value for name, value in self if name != "available_gib"}
        return max(terms, key=lambda name: terms[name]).removesuffix("_gib")


class Plan(Settings):
    """What will run, with nothing left open."""

    run: RunSpec
    origins: dict[str, Origin]
    """Dotted path of every leaf of `run` to where its value came from."""
    architecture: Architecture
    machine: Machine
    memory: MemoryEstimate
    slots: int
    """Sequences sampled at once."""
    token_budget: int
    """Tokens of one packed micro-batch."""
    max_sequence_tokens: int
    """Longest prompt plus answer that is admitted."""
    notes: tuple[str, ...] = ()
