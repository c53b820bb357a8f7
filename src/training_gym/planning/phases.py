"""What each phase of the embedded engine takes, as a function of what the engine may still choose.

The same terms as in `memory`, told apart by when they are there: gradients and activations while it
trains, keys, values and weights laid out for decoding while it samples, moments from the first
update on.
"""

from __future__ import annotations

from dataclasses import dataclass

from training_gym.planning.memory import (
    activation_bytes_per_token,
    adapter_parameters,
    cached_tokens,
    computed_bytes,
    copies_of,
)
from training_gym.spec.plan import Plan


@dataclass(frozen=True)
class Footprint:
    """Bytes above the loaded model, by what they grow with."""

    gradients: float
    moments: float
    per_packed_token: float
    per_logits_row: float
    """One row of the vocabulary in float32."""
    logits_rows: int
    """Most rows of logits that training makes at once."""
    head_copy: float
    """The head's weights once more, as training's products of the vocabulary read them."""
    per_cached_token: float
    per_slot: float
    """States of linear attention."""
    decoding_weights: float
    graphs: float = 0.0
    """Decoding steps recorded on an accelerator."""
    scratch_rows: int = 0
    """Rows of the cache beside those of the sequences."""

    def training(self, tokens: int) -> float:
        """Bytes of an update whose largest micro-batch has so many packed tokens."""
        return self.training_fixed(tokens) + tokens * self.per_packed_token

    def training_fixed(self, tokens: int) -> float:
        """The part of `training` that measured activations do not correct."""
        rows = min(self.logits_rows, tokens)
        return self.gradients + self.moments + self.head_copy + 3 * rows * self.per_logits_row

    def sampling(self, slots: int, tokens: int) -> float:
        """Bytes of decoding `slots` sequences of so many tokens."""
        drawing = slots * self.per_logits_row
        return self.moments + self.kept(slots, tokens) + drawing

    def kept(self, slots: int, tokens: int) -> float:
        """The part of `sampling` that can stay as it is from one batch to the next."""
        row = self.per_slot + cached_tokens(tokens) * self.per_cached_token
        cache = (slots + self.scratch_rows) * row
        return self.decoding_weights + self.graphs + cache + slots * self.per_logits_row


def footprint(plan: Plan) -> Footprint:
    """The footprint of a plan's model, trained and sampled as the plan says."""
    run, architecture = plan.run, plan.architecture
    engine, adapter = run.recipe.engine, run.recipe.adapter
    width = computed_bytes(engine, plan.machine)
    trained = adapter_parameters(architecture, adapter) if adapter else architecture.num_parameters
    llama = 2 * architecture.num_layers * architecture.num_kv_heads * architecture.head_dim
    alone = engine.sampler is None  # else vLLM has what it was given before any phase begins
    copies = copies_of(run, architecture, plan.machine)
    return Footprint(
        gradients=4.0 * trained,
        moments=8.0 * trained,
        per_packed_token=activation_bytes_per_token(architecture, width),
        per_logits_row=4.0 * architecture.vocab_size,
        logits_rows=engine.logprob_chunk_tokens,
        head_copy=copies.head,
        per_cached_token=float(alone * width * (architecture.cached_values or llama)),
        per_slot=4.0 * alone * architecture.state_values,
        decoding_weights=copies.decoding,
        graphs=copies.graphs,
        scratch_rows=copies.scratch_rows,
    )
