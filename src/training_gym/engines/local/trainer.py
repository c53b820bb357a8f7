"""The embedded trainer: packed micro-batches in, one update of the weights out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from training_gym.algorithms.losses import token_weights
from training_gym.engines.local.columns import tapped
from training_gym.engines.local.companions import (
    Companions,
    score_trajectories,
)
from training_gym.engines.local.guard import MemoryGuard
from training_gym.engines.local.head import chunked_backward
from training_gym.engines.local.measures import Learned
from training_gym.engines.local.network import Network
from training_gym.engines.local.objectives import columns_before_training, objective_for
from training_gym.engines.local.optimizer import Optimizer
from training_gym.engines.local.own_columns import own_columns
from training_gym.engines.local.packing import (
    MicroBatch,
    Row,
    joined,
    longest_unit,
    micro_batches,
)
from training_gym.engines.local.parallel.replicas import Alone, Replicas, share, weightless
from training_gym.engines.local.parts import Part, Parts, Taken
from training_gym.engines.local.value_head import with_optimizer
from training_gym.spec.engine import Column, TrainingBatch
from training_gym.spec.episodes import Trajectory
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
        companions: Companions | None = None,
        replicas: Replicas | None = None,
    ) -> None:
        """Train `network` as the recipe says; `save_weights` writes Hugging Face layout.

        `companions` are the frozen policies that the recipe's algorithm asks; `replicas` are the
        trainers of which this is one.
        """
        self._network = network
        self._recipe = recipe
        self._token_budget = token_budget
        self._chunk = recipe.engine.logprob_chunk_tokens
        self._save_weights = save_weights
        self._companions = companions or Companions()
        self._replicas = replicas or Alone()
        self.optimizer = Optimizer(network.trainable(), recipe.optimizer, total_steps)
        self.value_head, self.value_optimizer = with_optimizer(network, recipe, total_steps)
        self._objective = objective_for(
            recipe, value_head=self.value_head, teacher=self._companions.reference
        )
        self.latest: Learned | None = None
        """What the newest update was made from."""
        self.keeps_entropies = False
        """Whether that holds entropies."""
        self.guard: MemoryGuard | None = None
        self.columns = columns_before_training(recipe)
        """What `annotate` finds out, and `step` needs."""

    def annotate(
        self, trajectories: Sequence[Trajectory]
    ) -> dict[Column, tuple[tuple[float, ...], ...]]:
        """Per trajectory and token, what the algorithm needs to know before the first update."""
        if not self.columns:
            return {}
        with self._replicas.leading("annotate", trajectories):
            rank, world = self._replicas.rank, self._replicas.world
            parts = self._replicas.exchange(self._annotated(trajectories[rank::world]))
        return {
            name: tuple(parts[n % world][name][n // world] for n in range(len(trajectories)))
            for name in parts[0]
        }

    def _annotated(
        self, trajectories: Sequence[Trajectory]
    ) -> dict[Column, tuple[tuple[float, ...], ...]]:
        found: dict[Column, list[list[float]]] = {}
        if "reference_logprobs" in self.columns and self._companions.translated is None:
            assert self._companions.reference is not None, "the assembly loads it"
            found["reference_logprobs"] = score_trajectories(
                self._companions.reference,
                trajectories,
                temperature=self._objective.temperature,
                token_budget=self._token_budget,
                chunk=self._chunk,
            )
        found |= own_columns(
            self._network,
            trajectories,
            columns=self.columns,
            value_head=self.value_head,
            temperature=self._objective.temperature,
            token_budget=self._token_budget,
            chunk=self._chunk,
        )
        return {name: tuple(map(tuple, rows)) for name, rows in found.items()}

    def step(self, batch: TrainingBatch) -> dict[str, float]:
        """One update of the weights; returns its metrics."""
        *_, metrics = self.begin(batch)
        assert metrics is not None, "a step ends with its update"
        return metrics

    def begin(self, batch: TrainingBatch) -> Parts:
        """`step` in parts, between which others may compute: the last one changes the weights."""
        started = time.perf_counter()
        with self._replicas.leading("step", batch):
            rows, mine = self._own_share(self._rows(batch))
            self._network.release()
            taken = Taken(seconds=time.perf_counter() - started)
            yield from self._fitting(rows, taken)
            started = time.perf_counter()
            own = Part.of(taken.micros, mine, taken.loss, taken.logprobs, taken.entropies)
            parts = [part for part in self._replicas.exchange(own) if part.counts]
            metrics = self._update()
        self.latest = Learned(
            joined([part.micro for part in parts]),
            torch.cat([part.logprobs for part in parts]),
            torch.cat([part.entropies for part in parts]) if self.keeps_entropies else None,
        )
        if self.guard is not None:
            metrics |= self.guard.training_peak(taken.largest)
        yield {
            "loss": sum(part.loss for part in parts),
            **self._measure(self.latest.micro, self.latest.logprobs),
            **metrics,
            "train_tokens": float(sum(part.packed_tokens for part in parts)),
            "train_seconds": taken.seconds + time.perf_counter() - started,
        }

    def _fitting(self, rows: Sequence[Row], taken: Taken) -> Iterator[None]:
        """Add up the gradients of all rows, one micro-batch a part.

        Where memory runs out, the micro-batches are halved and all of them are made again.
        """
        longest = longest_unit(rows, self._objective.together)
        budget = self._token_budget if self.guard is None else self.guard.token_budget(longest)
        random = torch.get_rng_state()
        while True:
            try:
                yield from self._accumulated(rows, budget, taken)
                return
            except torch.OutOfMemoryError:
                if self.guard is None:
                    raise
            taken.drop()
            self.optimizer.clear()
            if self.value_optimizer is not None:
                self.value_optimizer.clear()
            torch.set_rng_state(random)
            budget = self.guard.after_failure(longest)

    def _accumulated(self, rows: Sequence[Row], budget: int, taken: Taken) -> Iterator[None]:
        together = self._objective.together
        micros = list(micro_batches(rows, budget, self._network.device, together=together))
        started = time.perf_counter()
        for left, micro in zip(reversed(range(len(micros))), micros, strict=True):
            self._replicas.last_backward(left == 0)
            taken.add(micro, *self._accumulate(micro))
            taken.seconds += time.perf_counter() - started
            yield None
            started = time.perf_counter()

    def _own_share(self, rows: Sequence[Row]) -> tuple[list[Row], list[int]]:
        """This trainer's rows, and their numbers."""
        together = self._objective.together
        mine = share(rows, self._replicas, together=together)
        # The sum of the gradients takes all trainers, also those for whom there is nothing.
        own = [rows[number] for number in mine] or [weightless(row) for row in rows[:together]]
        return own, mine

    def advance(self, parts: Parts) -> dict[str, float] | None:
        """Compute the next part of a step; the metrics with the last one."""
        return next(parts)

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `spec.engine.Trainer`."""
        return [self._network.score(ids, chunk=self._chunk) for ids in sequences]

    def save(self, directory: str) -> None:
        """Write optimizer, counters, torch's random state, and the value head if there is one."""
        with self._replicas.leading("save", directory):
            optimizer = self.optimizer.state()
            random = self._replicas.exchange(torch.get_rng_state())
        if self._replicas.rank:
            return  # what it would write is what the leader writes
        state = {"optimizer": optimizer, "random": random}
        if self.value_head is not None and self.value_optimizer is not None:
            state["value_head"] = self.value_head.state_dict()
            state["value_optimizer"] = self.value_optimizer.state()
        torch.save(state, Path(directory) / STATE_FILE)

    def load(self, directory: str) -> None:
        """Read what `save` wrote; raises `CheckpointError`."""
        path = Path(directory) / STATE_FILE
        try:
            state: dict[str, Any] = torch.load(path, weights_only=True)
            self.optimizer.restore(state["optimizer"])
            if self.value_head is not None and self.value_optimizer is not None:
                self.value_head.load_state_dict(state["value_head"])
                self.value_optimizer.restore(state["value_optimizer"])
            self._restore_random(state["random"])
        except (OSError, EOFError, RuntimeError, KeyError, ValueError, UnpicklingError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise CheckpointError(
                f"the trainer's state in {path} cannot be read: {reason:.120}",
                fix="resume from an older checkpoint",
            ) from error

    def export(self, directory: str) -> None:
        """Write the weights in Hugging Face layout."""
        self._save_weights(Path(directory))

    def _restore_random(self, saved: torch.Tensor | list[torch.Tensor]) -> None:
        """Random numbers go on where they were; with more trainers than then, some begin anew."""
        states = saved if isinstance(saved, list) else [saved]
        if self._replicas.rank < len(states):
            torch.set_rng_state(states[self._replicas.rank])

    def _rows(self, batch: TrainingBatch) -> list[Row]:
        weights = token_weights(
            [trajectory.loss_mask for trajectory in batch.trajectories],
            batch.weights,
            aggregation=self._objective.aggregation,
            max_response_tokens=self._recipe.max_response_tokens,
        )
        given = zip(batch.trajectories, batch.advantages, weights, strict=True)
        return [
            Row(*row, {name: columns[number] for name, columns in batch.columns.items()})
            for number, row in enumerate(given)
        ]

    def _accumulate(self, micro: MicroBatch) -> tuple[float, torch.Tensor, torch.Tensor | None]:
        """Add one micro-batch's gradient; its share of the loss, log-probabilities, entropies."""
        parts, entropies = self._objective.parts(micro), None
        if self.keeps_entropies:
            parts, entropies = tapped(parts, micro)
        self._network.model.train()
        try:
            hidden = self._network.hidden(micro.ids, micro.positions, micro.layout)
            loss, logprobs = chunked_backward(
                self._network,
                hidden.index_select(0, micro.sources),
                micro.targets,
                parts,
                temperature=self._objective.temperature,
                chunk=self._chunk,
            )
        finally:
            self._network.model.eval()
        return loss, logprobs, entropies

    def _update(self) -> dict[str, float]:
        with self._replicas.sharded():
            metrics = self.optimizer.update()
        if self.value_optimizer is None or self.value_head is None:
            return metrics
        self._replicas.sum_gradients(self.value_head.parameters())
        of_head = self.value_optimizer.update()
        return metrics | {
            "value_grad_norm": of_head["grad_norm"],
            "value_learning_rate": of_head["learning_rate"],
            "skipped": max(metrics["skipped"], of_head["skipped"]),
        }

    def _measure(self, micro: MicroBatch, logprobs: torch.Tensor) -> dict[str, float]:
        """Entropy estimated from the targets, and what the objective measures."""
        return {
            "entropy": -float(logprobs.mean()),
            "target_tokens": float(len(logprobs)),
            **self._objective.measure(micro, logprobs),
        }
