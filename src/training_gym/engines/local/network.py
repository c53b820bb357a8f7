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
from training_gym.engines.local.cache import SlotCache
from training_gym.engines.local.graphs import Recorder
from training_gym.engines.local.head import chunked_logprobs
from training_gym.engines.local.packed_path import PackedPath
from training_gym.engines.local.paths import fastest_path
from training_gym.engines.local.projection import Projection, is_projectable
from training_gym.engines.local.routing import BASE, Router, routing
from training_gym.engines.local.slot_layout import SlotLayout
from training_gym.engines.local.whole import hidden_whole
from training_gym.models.weights.adapters import adapter_names
from training_gym.spec.errors import EngineError, ModelError, did_you_mean


class Network:
    """Backbone and head of a loaded model, called with packed tokens."""

    def __init__(
        self,
        model: Any,
        *,
        autocast: torch.dtype | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Take over `model`: its attention is replaced, its weights are shared.

        Products are computed in `autocast`, None: in the type of the weights. `recorder` records
        decoding steps where a decoder computes them.
        """
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
        self.retains = False
        """Whether what decoding keeps beside the weights stays in memory while they change."""
        self.decoding = fastest_path(self._causal_lm, autocast=autocast, recorder=recorder)
        self.packing = PackedPath()
        """How packed sequences attend; by more than torch's attention once that is proven."""
        self._projection: Projection | None = None
        self._is_fused = False
        if self.decoding.packs:
            self._fuse(True)

    def _fuse(self, wanted: bool) -> None:
        """Train plain float32 layers on a CPU through parts of our own, or no more."""
        self._is_fused, self._projection = wanted, None
        (fused.install if wanted else fused.remove)(self._causal_lm)
        if wanted and is_projectable(self._head):
            self._projection = Projection(self._head)

    @property
    def parts(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        """Backbone and head."""
        return self._backbone, self._head

    def compute_through(self, backbone: torch.nn.Module) -> None:
        """From now on call `backbone`, which does the same as the one before, and more."""
        self._backbone = backbone

    @property
    def kind(self) -> str:
        """The model's type, as its configuration names it."""
        kind: str = self._causal_lm.config.model_type
        return kind

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
                layout=self.packing.over(layout),
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

    def cache(self, num_rows: int) -> SlotCache:
        """An empty cache of keys and values as passes read them."""
        return SlotCache(num_rows, dtype=self.autocast, scratch=self.decoding.records)

    @torch.no_grad()
    def next_logits(
        self, ids: torch.Tensor, positions: torch.Tensor, layout: SlotLayout
    ) -> torch.Tensor:
        """Logits (n, vocabulary) after one token in each of n rows; `layout.is_decode`.

        `ids` and `positions` may lie on the CPU. The next step may overwrite the logits.
        """
        if not self.decoding.by_modules and self._router is None:
            return self.decoding.logits(ids, positions, layout, self.device)
        self.decoding.release()
        return self.logits(self.hidden(ids.to(self.device), positions.to(self.device), layout))

    def release(self) -> None:
        """Give back the memory of what decoding keeps beside the weights, before they change.

        With `retains` it stays, and takes up the weights when they have changed.
        """
        if self.retains:
            self.decoding.outdate()
        else:
            self.decoding.release()
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

    def check_parity(self) -> float:
        """Compare with the model's own forward, and turn to what agrees: see `parity.check`.

        Returns the largest difference of a log-probability. Raises `ModelError` where nothing
        agrees.
        """
        return parity.check(self)

    def decode_slower(self, why: str) -> bool:
        """Take the next slower way of decoding, and say so; False: there is none."""
        if not self.decoding.leave(why):
            return False
        if self._is_fused and not self.decoding.packs:
            self._fuse(False)
        return True

    def stop_packing(self, why: str) -> None:
        """Compute sequences whole from now on, and say so."""
        self.packs = False
        self.is_stateful = False
        self._fuse(False)
        self._causal_lm.set_attn_implementation(self._own_attention)
        print(  # noqa: T201 - becomes a log record
            f"models of type {self.kind!r} run without packing, shared prompts and a cache, "
            f"which is much slower: {why}",
            file=sys.stderr,
            flush=True,
        )

    def own_logprobs(self, ids: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (n, vocabulary) of ids (n,) by the model's own forward.

        Raises `ModelError` where they are no numbers.
        """
        try:
            if self.packs:
                self._causal_lm.set_attn_implementation("eager")
            fused.remove(self._causal_lm)
            with self._routed(None, len(ids)):
                logits = self._causal_lm(input_ids=ids.unsqueeze(0), use_cache=False).logits[0]
        finally:
            if self.packs:
                self._causal_lm.set_attn_implementation(attention.IMPLEMENTATION)
            if self._is_fused:
                fused.install(self._causal_lm)
        if not torch.isfinite(logits).all():
            raise ModelError(
                "the model's own forward gives values that are no numbers: its weights are damaged",
                fix="fetch the model again",
            )
        logprobs: torch.Tensor = logits.float().log_softmax(-1)
        return logprobs
