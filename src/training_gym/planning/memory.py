"""The memory model of the embedded engine: what takes how much, at the worst moment.

One process holds everything: weights shared by trainer and sampler, gradients and moments of what
is trained, one micro-batch's activations, one chunk of logits, the sampler's cache. The terms are
summed although not all peak together, so the sum is an upper estimate. Copies of weights, which are
large and never there in both phases, are counted as far as what is missing meanwhile leaves no room
for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from training_gym.spec.algorithms import GivenAnswers
from training_gym.spec.plan import Architecture, Machine, MemoryEstimate
from training_gym.spec.recipe import LocalEngine, Lora
from training_gym.spec.run import RunSpec

GIB = 2.0**30

USABLE_FRACTION = 0.92
"""Share of a device's memory that may be planned for; the rest is fragmentation and neighbours."""

HOST_PROCESS_GIB = 0.6
"""Interpreter with torch and transformers loaded, and the allocator's slack."""

DEVICE_PROCESS_GIB = 0.9
"""A CUDA context with its kernels' workspaces."""

REWARD_WORKER_GIB = 0.1
"""One worker process, before what the user's own imports take."""

PLAIN_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
"""Families whose weights are laid out once more for decoding."""

GRAPHS_KEPT = 48
"""Most decoding steps that are kept recorded on an accelerator."""

GRAPH_BYTES = 10 * 2**20
"""One of them, with its share of the memory they compute in: what vLLM reports of its own graphs of
models of this size, 0.5 to 0.8 GiB for 67 of them; not measured here."""

CACHE_STEP_TOKENS = 64
"""Rows of the cache grow by so much."""

ACTIVATION_SLACK = 1.12
"""Measured over counted activations: SmolLM2-135M in float32 on CPU takes 1.74 MB a token."""


@dataclass(frozen=True)
class Shape:
    """What the planner may choose."""

    slots: int
    token_budget: int
    sequence_tokens: int


def has_cuda(machine: Machine) -> bool:
    """Whether it has an accelerator with memory of its own."""
    return machine.accelerator_memory_gib > 0 and machine.platform != "darwin"


def has_apple(machine: Machine) -> bool:
    """Whether it has Apple's accelerator, which shares the machine's memory."""
    return machine.accelerators > 0 and machine.platform == "darwin"


def on_accelerator(engine: LocalEngine, machine: Machine) -> bool:
    """Whether the weights lie in an accelerator's own memory."""
    if engine.device in ("cpu", "mps"):
        return False
    return engine.device == "cuda" or has_cuda(machine)


def computed_bytes(engine: LocalEngine, machine: Machine) -> int:
    """Bytes of one number as the network computes it: activations, keys and values."""
    if engine.dtype == "auto":
        return 2 if on_accelerator(engine, machine) else 4
    return 2 if engine.dtype == "bfloat16" else 4


def available_gib(engine: LocalEngine, machine: Machine) -> float:
    """Memory that one process may plan for, where the weights will lie."""
    total = (
        machine.accelerator_memory_gib if on_accelerator(engine, machine) else machine.memory_gib
    )
    alone = 1 if on_accelerator(engine, machine) else engine.data_parallel
    return total * USABLE_FRACTION / alone


def estimate_memory(
    run: RunSpec, architecture: Architecture, machine: Machine, shape: Shape
) -> MemoryEstimate:
    """Predicted peak of training `run` with `shape`, term by term."""
    engine = run.recipe.engine
    width = computed_bytes(engine, machine)
    adapter = run.recipe.adapter
    adapted = adapter_parameters(architecture, adapter) if adapter else 0
    trained = adapted if adapter else architecture.num_parameters
    # Weights are held in float32; computing in bfloat16 casts each of them once a pass.
    held = 4 if width == 4 else 6
    copies = copies_of(run, architecture, machine)
    activations = packed_tokens(shape) * activation_bytes_per_token(architecture, width)
    # Where half precision is computed in, what is cast while training is counted in `held`.
    training = copies.head if width == 4 else 2 * (architecture.num_parameters + adapted)
    uncovered = max(0.0, copies.decoding - training - 4 * trained - activations)
    beside = architecture.companion_parameters
    replicas = engine.data_parallel
    # Beside whole weights, each of several processes keeps the shard that it changes.
    shards = 4 * (architecture.num_parameters + adapted) / replicas if replicas > 1 else 0
    held_bytes = held * (architecture.num_parameters + adapted + beside)
    return MemoryEstimate(
        weights_gib=(held_bytes + shards + copies.head + uncovered) / GIB,
        gradients_gib=4 * trained / GIB,
        optimizer_gib=8 * trained / replicas / GIB,  # AdamW's two moments, in float32
        activations_gib=activations / GIB,
        logits_gib=_logits_bytes(run, architecture, shape) / GIB,
        kv_cache_gib=_cache_bytes(run, architecture, machine, shape) / GIB,
        process_gib=_process_gib(run, machine) + copies.graphs / GIB,
        available_gib=available_gib(engine, machine),
    )


def activation_bytes_per_token(architecture: Architecture, width: int) -> float:
    r"""What one packed token keeps for the backward pass, over all layers.

    Counted from the operations of a Llama layer after the method of Korthikanti et al. 2022
    (arXiv:2205.05198, section 4), without recomputation and with attention that does not keep its
    scores. Per layer, with hidden size $h$, attention width $a$, key-value width $k$ and MLP width
    $f$: both norms keep input, normalised input and output ($6h$); attention keeps queries, its
    output and that output reordered ($3a$), keys and values ($2k$) and these expanded to all heads
    ($2a$); the gated MLP keeps both projections, the activated gate and the product ($4f$). In
    bfloat16 each norm also keeps its input in float32 ($8h$ bytes).
    """
    h = architecture.hidden_size
    attention = architecture.num_heads * architecture.head_dim
    keys = architecture.num_kv_heads * architecture.head_dim
    dense = architecture.intermediate_size * max(1, architecture.experts_per_token)
    mlp = architecture.active_width or architecture.num_layers * dense
    kept = width * (architecture.num_layers * (6 * h + 5 * attention + 2 * keys) + 4 * mlp)
    upcast = 8 * h * architecture.num_layers if width < 4 else 0
    return ACTIVATION_SLACK * (kept + upcast)


def adapter_parameters(architecture: Architecture, adapter: Lora) -> int:
    """Parameters of a low-rank adapter on every linear layer: rank x (inputs + outputs) each.

    Experts are no linear layers: they are one parameter each, and no adapter covers them.
    """
    if architecture.adapted_widths:
        return adapter.rank * architecture.adapted_widths
    h = architecture.hidden_size
    attention = architecture.num_heads * architecture.head_dim
    keys = architecture.num_kv_heads * architecture.head_dim
    mlp = 3 * (h + architecture.intermediate_size) * max(1, architecture.experts)
    widths = 2 * (h + attention) + 2 * (h + keys) + mlp
    return adapter.rank * architecture.num_layers * widths


def _logits_bytes(run: RunSpec, architecture: Architecture, shape: Shape) -> float:
    """The larger of training's chunk (logits, softmax, gradient) and sampling's (logits, draw)."""
    training = 3 * min(run.recipe.engine.logprob_chunk_tokens, shape.token_budget)
    return 4.0 * architecture.vocab_size * max(training, 2 * shape.slots)


def _cache_bytes(run: RunSpec, architecture: Architecture, machine: Machine, shape: Shape) -> float:
    """Keys and values of every slot at full length, and the states of linear attention.

    vLLM takes what it was given for them and for its copy of the weights.
    """
    if not samples(run):
        return 0.0
    width = computed_bytes(run.recipe.engine, machine)
    if (vllm := run.recipe.engine.sampler) is not None:
        if on_accelerator(run.recipe.engine, machine):
            return vllm.memory_fraction * machine.accelerator_memory_gib * GIB
        return vllm.cpu_cache_gib * GIB + width * architecture.num_parameters
    llama = 2 * architecture.num_layers * architecture.num_kv_heads * architecture.head_dim
    per_token = architecture.cached_values or llama
    states = 4 * architecture.state_values  # kept in float32
    rows = shape.slots + copies_of(run, architecture, machine).scratch_rows
    return float(rows * (width * per_token * cached_tokens(shape.sequence_tokens) + states))


@dataclass(frozen=True)
class Copies:
    """Bytes kept beside the weights so that products read them in another layout or type."""

    head: float = 0.0
    """While it trains on a CPU in float32: the head as products with the vocabulary read it."""
    decoding: float = 0.0
    """While it samples: every weight as decoding steps read it."""
    graphs: float = 0.0
    """Decoding steps recorded on an accelerator."""
    scratch_rows: int = 0
    """Rows of the cache that these need."""


def copies_of(run: RunSpec, architecture: Architecture, machine: Machine) -> Copies:
    """What the embedded engine keeps for a run of `architecture`."""
    engine, adapter = run.recipe.engine, run.recipe.adapter
    if architecture.family not in PLAIN_FAMILIES or engine.device == "mps":
        return Copies()
    width, on_device = computed_bytes(engine, machine), on_accelerator(engine, machine)
    packs = width == 4 and not on_device
    head = 4.0 * architecture.vocab_size * architecture.hidden_size if packs else 0.0
    if engine.sampler is not None or not samples(run):
        return Copies(head)
    # A CPU's layout has adapters added to the weights. Copies keep them apart, those of joined
    # layers with zeros between them: less than twice their size.
    apart = 2 * adapter_parameters(architecture, adapter) if adapter and not packs else 0
    recorded = on_device and engine.graphs
    return Copies(
        head,
        decoding=float(width * (architecture.num_parameters + apart)),
        graphs=float(recorded * GRAPHS_KEPT * GRAPH_BYTES),
        scratch_rows=int(recorded),
    )


def packed_tokens(shape: Shape) -> int:
    """Tokens of the largest micro-batch."""
    return max(shape.token_budget, shape.sequence_tokens)


def cached_tokens(tokens: int) -> int:
    """Tokens that a row of the cache has room for when it holds so many."""
    return -(-tokens // CACHE_STEP_TOKENS) * CACHE_STEP_TOKENS


def samples(run: RunSpec) -> bool:
    """Whether the run draws tokens at all: with given answers it does only to be evaluated."""
    return not isinstance(run.recipe.algorithm, GivenAnswers) or bool(run.evaluations)


def _process_gib(run: RunSpec, machine: Machine) -> float:
    if on_accelerator(run.recipe.engine, machine):
        return DEVICE_PROCESS_GIB
    return HOST_PROCESS_GIB + REWARD_WORKER_GIB * run.recipe.reward_workers
