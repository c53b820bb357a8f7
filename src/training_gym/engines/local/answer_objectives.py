"""What is minimised where answers or a teacher say what to learn: no advantages."""

from __future__ import annotations

import torch

from training_gym.algorithms import divergences, losses, preferences, ratios
from training_gym.engines.local.companions import Scorer
from training_gym.engines.local.head import Chunk, LossParts
from training_gym.engines.local.measures import against_sampler
from training_gym.engines.local.packing import MicroBatch
from training_gym.spec.algorithms import DPO, Aggregation, FullVocabulary, Preference, SimPO


class Imitation:
    """Maximum likelihood of given answers."""

    aggregation: Aggregation = "token_mean"
    temperature = 1.0
    together = 1

    def parts(self, micro: MicroBatch) -> LossParts:
        """See `Objective`."""
        return LossParts(
            by_chunk=lambda chunk: losses.likelihood_loss(chunk.logprobs, micro.weights[chunk.part])
        )

    def measure(self, micro: MicroBatch, logprobs: torch.Tensor) -> dict[str, float]:
        """See `Objective`."""
        return {}


class Preferences:
    """Pairs of rows: the chosen answer, then the rejected one."""

    aggregation: Aggregation = "sequence_mean"
    temperature = 1.0
    together = 2

    def __init__(self, algorithm: Preference) -> None:
        """`DPO` or `SimPO`."""
        self._algorithm = algorithm

    def parts(self, micro: MicroBatch) -> LossParts:
        """See `Objective`."""

        def joint(logprobs: torch.Tensor) -> torch.Tensor:
            margins, algorithm = self._margins(micro, logprobs), self._algorithm
            if isinstance(algorithm, SimPO):
                each = preferences.simpo_loss(margins, algorithm)
            else:
                assert isinstance(algorithm, DPO)
                each = preferences.dpo_loss(margins, algorithm)
            weights = ratios.row_totals(micro.weights, micro.rows).view(-1, 2).sum(1)
            return (weights * each).sum()

        return LossParts(joint=joint)

    def _margins(self, micro: MicroBatch, logprobs: torch.Tensor) -> torch.Tensor:
        reference = micro.columns.get("reference_logprobs", torch.zeros_like(logprobs))
        pairs = []
        for values in (logprobs, reference):
            totals = ratios.row_totals(values, micro.rows)
            if self._by_length:
                totals = totals / ratios.row_totals(torch.ones_like(values), micro.rows)
            pairs.append(totals.view(-1, 2))
        policy, held = pairs
        return preferences.preference_margins(policy[:, 0], policy[:, 1], held[:, 0], held[:, 1])

    @property
    def _by_length(self) -> bool:
        return not isinstance(self._algorithm, DPO) or self._algorithm.length_normalized

    def measure(self, micro: MicroBatch, logprobs: torch.Tensor) -> dict[str, float]:
        """See `Objective`."""
        margins = self._margins(micro, logprobs)
        totals = ratios.row_totals(logprobs, micro.rows).view(-1, 2)
        return {
            "preference_margin": float(margins.mean()),
            "preference_accuracy": float((margins > 0).float().mean()),
            "chosen_logprob": float(totals[:, 0].mean()),
            "rejected_logprob": float(totals[:, 1].mean()),
        }


class FullDistillation:
    """Divergence from the teacher's whole distribution, a chunk of positions at a time."""

    aggregation: Aggregation = "token_mean"
    together = 1

    def __init__(self, loss: FullVocabulary, temperature: float, teacher: Scorer) -> None:
        """`teacher` sees the same packed tokens."""
        self.temperature = temperature
        self._mixture = loss.mixture
        self._teacher = teacher

    def parts(self, micro: MicroBatch) -> LossParts:
        """See `Objective`. The teacher's logits exist for a chunk, as the student's do."""
        with torch.no_grad():
            states = self._teacher.hidden(micro.ids, micro.positions, micro.layout)
            states = states.index_select(0, micro.sources)

        def by_chunk(chunk: Chunk) -> torch.Tensor:
            with torch.no_grad():
                teacher = self._teacher.logits(states[chunk.part]) / self.temperature
            found = divergences.generalized_jensen_shannon(chunk.logits, teacher, self._mixture)
            return (micro.weights[chunk.part] * found).sum()

        return LossParts(by_chunk=by_chunk, reads_logits=True)

    def measure(self, micro: MicroBatch, logprobs: torch.Tensor) -> dict[str, float]:
        """See `Objective`."""
        return against_sampler(logprobs, micro.sampler_logprobs)
