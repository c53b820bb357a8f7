"""The embedded trainer: packed micro-batches in, one update of the weights out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from training_gym.algorithms.losses import (
    clipped_fraction,
    clipped_policy_loss,
    likelihood_loss,
    token_weights,
)
from training_gym.engines.local.attention import PackedLayout, Segment
from training_gym.engines.local.head import TokenLoss, chunked_backward, chunked_logprobs
from training_gym.engines.local.network import Network
from training_gym.engines.local.optimizer import Optimizer
from training_gym.engines.local.packing import MicroBatch, Row, micro_batches
from training_gym.spec.algorithms import SFT
from training_gym.spec.engine import TrainingBatch
from training_gym.spec.errors import CheckpointError
from training_gym.spec.recipe import Recipe

STATE_FILE = "trainer.pt"


class LocalTrainer:
    """Implements `spec.engine.Trainer` over a network in this process."""

    def __init__(
        self,
        network: Network,
        recipe: Recipe,
        *,
        token_budget: int,
        total_steps: int,
        save_weights: Callable[[Path], None],
    ) -> None:
        """Train `network` as the recipe says; `save_weights` writes Hugging Face layout."""
        self._network = network
        self._recipe = recipe
        self._token_budget = token_budget
        self._chunk = recipe.engine.logprob_chunk_tokens
        self._save_weights = save_weights
        self.optimizer = Optimizer(network.trainable(), recipe.optimizer, total_steps)

    def step(self, batch: TrainingBatch) -> dict[str, float]:
        """One update of the weights; returns its metrics."""
        started = time.perf_counter()
        rows = self._rows(batch)
        self._network.model.train()
        loss, packed_tokens = 0.0, 0
        seen: list[MicroBatch] = []
        logprobs: list[torch.Tensor] = []
        for micro in micro_batches(rows, self._token_budget, self._network.device):
            part, found = self._accumulate(micro)
            loss += part
            packed_tokens += micro.num_tokens
            seen.append(micro)
            logprobs.append(found)
        metrics = self.optimizer.update()
        self._network.model.eval()
        seconds = time.perf_counter() - started
        return {
            "loss": loss,
            **self._measure(seen, logprobs),
            **metrics,
            "train_tokens": float(packed_tokens),
            "train_seconds": seconds,
        }

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `spec.engine.Trainer`."""
        return [self._score(torch.tensor(list(ids))) for ids in sequences]

    def save(self, directory: str) -> None:
        """Write optimizer, counters and torch's random state."""
        state = {"optimizer": self.optimizer.state(), "random": torch.get_rng_state()}
        torch.save(state, Path(directory) / STATE_FILE)

    def load(self, directory: str) -> None:
        """Read what `save` wrote; raises `CheckpointError`."""
        path = Path(directory) / STATE_FILE
        try:
            state: dict[str, Any] = torch.load(path, weights_only=True)
            self.optimizer.restore(state["optimizer"])
            torch.set_rng_state(state["random"])
        except (OSError, EOFError, RuntimeError, KeyError, ValueError, UnpicklingError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise CheckpointError(
                f"the trainer's state in {path} cannot be read: {reason:.120}",
                fix="resume from an older checkpoint",
            ) from error

    def export(self, directory: str) -> None:
        """Write the weights in Hugging Face layout."""
        self._save_weights(Path(directory))

    def _rows(self, batch: TrainingBatch) -> list[Row]:
        algorithm = self._recipe.algorithm
        weights = token_weights(
            [trajectory.loss_mask for trajectory in batch.trajectories],
            batch.weights,
            aggregation="token_mean" if isinstance(algorithm, SFT) else algorithm.aggregation,
            max_response_tokens=self._recipe.max_response_tokens,
        )
        return [
            Row(trajectory, advantages, weight)
            for trajectory, advantages, weight in zip(
                batch.trajectories, batch.advantages, weights, strict=True
            )
        ]

    def _accumulate(self, micro: MicroBatch) -> tuple[float, torch.Tensor]:
        """Add one micro-batch's gradient; its share of the loss, and its log-probabilities."""
        hidden = self._network.hidden(micro.ids, micro.positions, micro.layout)
        total = torch.zeros((), device=hidden.device)
        token_loss = self._token_loss(micro)

        def counted(logprobs: torch.Tensor, part: slice) -> torch.Tensor:
            nonlocal total
            loss = token_loss(logprobs, part)
            total = total + loss.detach()
            return loss

        logprobs = chunked_backward(
            self._network,
            hidden.index_select(0, micro.sources),
            micro.targets,
            counted,
            temperature=self._temperature,
            chunk=self._chunk,
        )
        return float(total), logprobs

    def _token_loss(self, micro: MicroBatch) -> TokenLoss:
        algorithm = self._recipe.algorithm
        if isinstance(algorithm, SFT):
            return lambda logprobs, part: likelihood_loss(logprobs, micro.weights[part])
        clip = {"clip_low": algorithm.clip_low, "clip_high": algorithm.clip_high}
        return lambda logprobs, part: clipped_policy_loss(
            logprobs,
            micro.old_logprobs[part],
            micro.advantages[part],
            micro.weights[part],
            **clip,
        )

    @property
    def _temperature(self) -> float:
        """Temperature of the distribution that was sampled from."""
        if isinstance(self._recipe.algorithm, SFT):
            return 1.0
        return self._recipe.sampling.temperature

    def _measure(
        self, seen: Sequence[MicroBatch], found: Sequence[torch.Tensor]
    ) -> dict[str, float]:
        """Entropy estimate; how far training and sampling disagree; what clipping removed."""
        logprobs = torch.cat(list(found))
        metrics = {"entropy": -float(logprobs.mean()), "target_tokens": float(len(logprobs))}
        algorithm = self._recipe.algorithm
        if isinstance(algorithm, SFT):
            return metrics
        old = torch.cat([micro.old_logprobs for micro in seen])
        advantages = torch.cat([micro.advantages for micro in seen])
        difference = logprobs - old
        ratio = torch.exp(difference)
        return metrics | {
            "mismatch_mean": float(difference.abs().mean()),
            "mismatch_max": float(difference.abs().max()),
            "ratio_max": float(ratio.max()),
            "effective_sample_share": float(ratio.sum() ** 2 / (len(ratio) * (ratio**2).sum())),
            "kl_to_sampler": float((ratio - 1 - difference).mean()),
            "clipped_fraction": float(
                clipped_fraction(
                    logprobs,
                    old,
                    advantages,
                    clip_low=algorithm.clip_low,
                    clip_high=algorithm.clip_high,
                )
            ),
        }

    @torch.no_grad()
    def _score(self, ids: torch.Tensor) -> list[float]:
        ids = ids.to(self._network.device)
        positions = torch.arange(len(ids), device=ids.device)
        layout = PackedLayout((Segment(0, len(ids)),))
        hidden = self._network.hidden(ids, positions, layout)
        scores = chunked_logprobs(
            self._network, hidden[:-1], ids[1:], temperature=1.0, chunk=self._chunk
        )
        return [0.0, *scores.tolist()]
