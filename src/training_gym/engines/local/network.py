"""A causal language model as the engine sees it: packed ids in, hidden states out, logits apart.

Any `transformers` model whose layers take their attention from the registered interface runs here
unchanged. That this engine's passes compute what the model's own forward computes is not assumed
but checked once, when the model is loaded (`check_parity`). Where they do not, sequences are
computed whole, one after another (`whole.py`).
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from training_gym.engines.local import attention, fused, parity, recurrence
from training_gym.engines.local.attention import Layout, PackedLayout, Segment
from training_gym.engines.local.decoding import Decoder, is_plain
from training_gym.engines.local.head import chunked_logprobs
from training_gym.engines.local.projection import Projection, is_projectable
from training_gym.engines.local.routing import BASE, Router, routing
from training_gym.engines.local.slot_layout import SlotLayout
from training_gym.engines.local.whole import hidden_whole
from training_gym.models.weights.adapters import adapter_names
from training_gym.spec.errors import EngineError, ModelError, did_you_mean

PARITY_TOLERANCE = 3e-4
"""Largest difference of a log-probability from the model's own forward, in float32."""

HALF_TOLERANCE = 0.5
"""The same in bfloat16."""


class Network:
    """Backbone and head of a loaded model, called with packed tokens."""

    def __init__(self, model: Any, *, autocast: torch.dtype | None = None) -> None:
        """Take over `model`: its attention is replaced, its weights are shared."""
        attention.register()
        self.model = model
        self.autocast = autocast
        self._causal_lm = model.get_base_model() if hasattr(model, "peft_config") else model
        own: str = self._causal_lm.config._attn_implementation
        self._own_attention = "eager" if own == attention.IMPLEMENTATION else own
        self._causal_lm.set_attn_implementation(attention.IMPLEMENTATION)
        self.packs = True
        """Whether sequences are packed and cached; else each is computed whole, at every step."""
        attention.link_shared_layers(self._causal_lm)
        self.is_stateful = recurrence.install(self._causal_lm) > 0
        self._backbone = self._causal_lm.base_model
        self._head = self._causal_lm.get_output_embeddings()
        config = self._causal_lm.config.get_text_config()
        self._softcap: float | None = getattr(config, "final_logit_softcapping", None)
        self.vocab_size: int = config.vocab_size
        self.adapter: str | None = None
        """The adapter this network is a view of; None: whatever the model has active."""
        self._router: Router | None = None
        self._decoder: Decoder | None = None
        self._projection: Projection | None = None
        if autocast is None and is_plain(self._causal_lm):
            self._decoder = Decoder(self._causal_lm)
            fused.install(self._causal_lm)
            if is_projectable(self._head):
                self._projection = Projection(self._head)

    @property
    def parts(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        """Backbone and head."""
        return self._backbone, self._head

    def compute_through(self, backbone: torch.nn.Module) -> None:
        """From now on call `backbone`, which does the same as the one before, and more."""
        self._backbone = backbone

    @property
    def own_adapter(self) -> str:
        """What requests that name no adapter pass through."""
        names = adapter_names(self.model)
        return self.adapter or (names[0] if names else BASE)

    def view(self, adapter: str) -> Network:
        """The same model with one of its adapters, to be trained or scored beside the others.

        Raises `EngineError` where there is no such adapter.
        """
        self.route(adapter)
        found = copy.copy(self)
        found.adapter = adapter
        return found

    def route(self, adapter: str | None) -> str:
        """The name by which a request's adapter is known; from now on passes may mix adapters.

        Raises `EngineError` where there is no such adapter.
        """
        if adapter is None or adapter == self.own_adapter:
            return self.own_adapter
        names = adapter_names(self.model)
        if adapter not in (*names, BASE):
            raise EngineError(
                f"the model has no adapter called {adapter!r}",
                fix=did_you_mean(adapter, (*names, BASE)),
            )
        if self._router is None:
            self._router = Router()
        self._router.take_over(self.model)
        return adapter

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def trainable(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Names and parameters that training changes, in a fixed order."""
        found = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        if self.adapter is None:
            return found
        return [(name, p) for name, p in found if f".{self.adapter}." in name]

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor, layout: Layout) -> torch.Tensor:
        """Last hidden states (N, hidden) of N packed tokens."""
        with self._precision(), self._routed(layout, len(ids)):
            if not self.packs:
                return hidden_whole(self._own_hidden, ids, layout)
            output = self._backbone(
                input_ids=ids.unsqueeze(0),
                position_ids=positions.unsqueeze(0),
                use_cache=False,
                layout=layout,
            )
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden

    def _own_hidden(self, ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self._backbone(
            input_ids=ids.unsqueeze(0), use_cache=False
        ).last_hidden_state[0]
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocabulary) in float32 of hidden states (n, hidden)."""
        with self._precision():
            logits: torch.Tensor = (self._projection or self._head)(hidden).float()
        if self._softcap is not None:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits

    @torch.no_grad()
    def next_logits(
        self, ids: torch.Tensor, positions: torch.Tensor, layout: SlotLayout
    ) -> torch.Tensor:
        """Logits (n, vocabulary) after one token in each of n rows; `layout.is_decode`."""
        if self._decoder is None or self._router is not None:
            return self.logits(self.hidden(ids, positions, layout))
        return self._decoder.logits(ids, positions, layout)

    def release(self) -> None:
        """Give back the memory of what decoding keeps beside the weights, before they change."""
        if self._decoder is not None:
            self._decoder.release()
        if self._projection is not None:
            self._projection.release()

    @torch.no_grad()
    def score(self, ids: Sequence[int], *, chunk: int = 512) -> list[float]:
        """Log p(token | those before it) of one sequence; that of the first token is given as 0."""
        if len(ids) < 2:
            return [0.0] * len(ids)
        tokens = torch.tensor(list(ids), device=self.device)
        layout = PackedLayout((Segment(0, len(ids)),))
        hidden = self.hidden(tokens, torch.arange(len(ids), device=self.device), layout)
        scores = chunked_logprobs(self, hidden[:-1], tokens[1:], temperature=1.0, chunk=chunk)
        return [0.0, *scores.tolist()]

    @contextmanager
    def _routed(self, layout: Layout | None, num_tokens: int) -> Iterator[None]:
        """Send each segment through its adapter, where there is a choice."""
        if self._router is None:
            yield
            return
        if isinstance(layout, SlotLayout) and layout.adapters:
            adapters, lengths = layout.adapters, layout.lengths
        else:
            adapters, lengths = (self.own_adapter,), (num_tokens,)
        with self._router.following(routing(adapters, lengths, self.device)):
            yield

    @contextmanager
    def _precision(self) -> Iterator[None]:
        if self.autocast is None:
            yield
            return
        with torch.autocast(self.device.type, dtype=self.autocast):
            yield

    @torch.no_grad()
    def check_parity(self) -> float:
        """Compare with the model's own forward on a short sequence; the largest difference.

        It is packed as training packs it, behind a prefix which another segment continues too, and
        computed token by token over the cache, beside another row.

        Both in float32, where anything but rounding shows, and then as the network computes. Where
        they disagree, or the layers do not take a layout, the network turns to computing sequences
        whole, says so on stderr, and is compared again.

        Raises `ModelError` where that disagrees, too: such a model would be trained on something
        else than it computes.
        """
        ids = torch.arange(1, 13, device=self.device) * 7 % self.vocab_size
        was_training, precision = self.model.training, self.autocast
        self.model.eval()
        self.autocast = None
        exact = self._causal_lm.dtype not in (torch.bfloat16, torch.float16)
        try:
            expected = self._own_logprobs(ids)
            tolerance = PARITY_TOLERANCE if exact else HALF_TOLERANCE
            difference, why = self._difference(ids, expected, tolerance)
            if why and self._decoder is not None:
                self._decoder = self._projection = None
                fused.remove(self._causal_lm)
                difference, why = self._difference(ids, expected, tolerance)
            if why and self.packs:
                self._stop_packing(why)
                difference, why = self._difference(ids, expected, tolerance)
            self.autocast = precision
            if precision is not None and not why:
                difference, why = self._difference(ids, expected, HALF_TOLERANCE)
        finally:
            self.autocast = precision
            self.model.train(was_training)
        if why:
            kind = self._causal_lm.config.model_type
            raise ModelError(
                f"the embedded engine cannot run models of type {kind!r}: {why}",
                fix="choose another model, such as smollm2-135m",
            )
        return difference

    def _difference(
        self, ids: torch.Tensor, expected: torch.Tensor, tolerance: float
    ) -> tuple[float, str]:
        """The largest one from `expected`, and what is wrong with it; an empty text: nothing."""
        try:
            ours = [parity.packed_logprobs(self, ids), parity.cached_logprobs(self, ids)]
        except (TypeError, AttributeError, NotImplementedError, KeyError, ValueError) as error:
            return float("nan"), f"its layers do not take a layout ({error})"
        difference = max(float((found - expected).abs().max()) for found in ours)
        if difference <= tolerance:
            return difference, ""
        return difference, f"log-probabilities differ by {difference:.2g} from its own forward"

    def _stop_packing(self, why: str) -> None:
        """Compute sequences whole from now on."""
        self.packs = False
        self.is_stateful = False
        self._decoder = self._projection = None
        self._causal_lm.set_attn_implementation(self._own_attention)
        kind = self._causal_lm.config.model_type
        print(  # noqa: T201 - becomes a log record
            f"models of type {kind!r} run without packing, shared prompts and a cache, which is "
            f"much slower: {why}",
            file=sys.stderr,
            flush=True,
        )

    def _own_logprobs(self, ids: torch.Tensor) -> torch.Tensor:
        try:
            if self.packs:
                self._causal_lm.set_attn_implementation("eager")
            fused.remove(self._causal_lm)
            with self._routed(None, len(ids)):
                logits = self._causal_lm(input_ids=ids.unsqueeze(0), use_cache=False).logits[0]
        finally:
            if self.packs:
                self._causal_lm.set_attn_implementation(attention.IMPLEMENTATION)
            if self._decoder is not None:
                fused.install(self._causal_lm)
        if not torch.isfinite(logits).all():
            raise ModelError(
                "the model's own forward gives values that are no numbers: its weights are damaged",
                fix="fetch the model again",
            )
        logprobs: torch.Tensor = logits.float().log_softmax(-1)
        return logprobs
