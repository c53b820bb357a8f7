"""What every algorithm minimises that weighs its own sampled tokens with advantages."""

from __future__ import annotations

import torch

from training_gym.algorithms import corrections, divergences, losses, ratios
from training_gym.engines.local.head import Chunk, LossParts
from training_gym.engines.local.measures import against_sampler, explained_variance
from training_gym.engines.local.packing import MicroBatch
from training_gym.engines.local.value_head import ValueHead, with_scaled_gradient
from training_gym.spec.algorithms import CISPO, PPO, Aggregation, PolicyAlgorithm
from training_gym.spec.loss_terms import LossKL


class PolicyImprovement:
    """Every algorithm that weighs sampled tokens with advantages."""

    together = 1

    def __init__(
        self, algorithm: PolicyAlgorithm, temperature: float, value_head: ValueHead | None
    ) -> None:
        """`value_head` goes with PPO."""
        self.aggregation: Aggregation = algorithm.aggregation
        self.temperature = temperature
        self._algorithm = algorithm
        self._value_head = value_head

    def parts(self, micro: MicroBatch) -> LossParts:
        """See `Objective`. Ratios of whole trajectories need all their tokens at once."""
        everything = slice(None)
        entropy = self._algorithm.entropy_coefficient
        by_token = self._algorithm.ratio == "token"
        correction = self._known_correction(micro)

        def surrogate(logprobs: torch.Tensor, part: slice) -> torch.Tensor:
            return self._loss(micro, logprobs, part, correction)

        def by_chunk(chunk: Chunk) -> torch.Tensor:
            loss = torch.zeros((), device=chunk.logits.device)
            if by_token:
                loss = loss + surrogate(chunk.logprobs, chunk.part)
            if entropy:
                spread = divergences.entropies(chunk.logits)
                loss = loss - entropy * (micro.weights[chunk.part] * spread).sum()
            return loss

        return LossParts(
            by_chunk=by_chunk if by_token or entropy else None,
            reads_logits=bool(entropy),
            joint=None if by_token else lambda found: surrogate(found, everything),
            by_state=None if self._value_head is None else lambda seen: self._values(micro, seen),
        )

    def _known_correction(self, micro: MicroBatch) -> torch.Tensor | None:
        """Weights of all targets (M,), where they depend on columns alone.

        Those by sequence always do: a chunk may end within a trajectory.
        """
        correction, old = self._algorithm.correction, micro.columns.get("old_logprobs")
        if correction is None or old is None:
            return None
        return corrections.correction_weights(old, micro.sampler_logprobs, micro.rows, correction)

    def _loss(
        self,
        micro: MicroBatch,
        logprobs: torch.Tensor,
        part: slice,
        correction: torch.Tensor | None,
    ) -> torch.Tensor:
        """Surrogate and KL of some targets, or of all."""
        algorithm = self._algorithm
        old, weights = self._old(micro, logprobs, part), micro.weights[part]
        if correction is not None:
            weights = weights * correction[part]
        elif algorithm.correction is not None:
            weights = weights * corrections.correction_weights(
                old, micro.sampler_logprobs[part], micro.rows[part], algorithm.correction
            )
        log_ratios = ratios.log_ratios(logprobs, old, micro.rows[part], algorithm.ratio)
        loss = self._surrogate(logprobs, log_ratios, micro.advantages[part], weights)
        if isinstance(algorithm.kl, LossKL):
            loss = loss + algorithm.kl.coefficient * divergences.kl_loss(
                logprobs,
                micro.columns["reference_logprobs"][part],
                micro.sampler_logprobs[part],
                micro.weights[part],
                estimator=algorithm.kl.estimator,
                exact_gradient=algorithm.kl.gradient == "exact",
            )
        return loss

    def _old(self, micro: MicroBatch, logprobs: torch.Tensor, part: slice) -> torch.Tensor:
        """What the ratio compares with: the sampler, or the trainer before its first update."""
        if self._algorithm.correction is None:
            return micro.sampler_logprobs[part]
        if "old_logprobs" in micro.columns:
            return micro.columns["old_logprobs"][part]
        return logprobs.detach()  # the only update of the batch: this is before it

    def _surrogate(
        self,
        logprobs: torch.Tensor,
        log_ratios: torch.Tensor,
        advantages: torch.Tensor,
        weights: torch.Tensor,
    ) -> torch.Tensor:
        algorithm = self._algorithm
        if isinstance(algorithm, CISPO):
            return losses.bounded_weight_loss(
                logprobs, log_ratios, advantages, weights, ratio_max=algorithm.ratio_max
            )
        return losses.clipped_policy_loss(
            log_ratios,
            advantages,
            weights,
            clip_low=algorithm.clip_low,
            clip_high=algorithm.clip_high,
            dual_clip=algorithm.dual_clip,
        )

    def _values(self, micro: MicroBatch, hidden: torch.Tensor) -> torch.Tensor:
        assert self._value_head is not None
        assert isinstance(self._algorithm, PPO)
        seen = with_scaled_gradient(hidden, self._algorithm.value_coefficient)
        return losses.value_loss(
            self._value_head(seen),
            micro.columns["returns"],
            micro.columns["values"],
            micro.weights,
            value_clip=self._algorithm.value_clip,
        )

    def measure(self, micro: MicroBatch, logprobs: torch.Tensor) -> dict[str, float]:
        """See `Objective`."""
        algorithm, columns = self._algorithm, micro.columns
        old = self._old(micro, logprobs, slice(None))
        log_ratios = ratios.log_ratios(logprobs, old, micro.rows, algorithm.ratio)
        metrics = against_sampler(logprobs, micro.sampler_logprobs)
        metrics["clipped_fraction"] = self._clipped(log_ratios, micro.advantages)
        if "reference_logprobs" in columns:
            estimates = divergences.kl_estimates(logprobs, columns["reference_logprobs"], "k3")
            metrics["kl_to_reference"] = float(estimates.mean())
        if algorithm.correction is not None:
            weights = corrections.correction_weights(
                old, micro.sampler_logprobs, micro.rows, algorithm.correction
            )
            metrics["correction_mean"] = float(weights.mean())
            metrics["correction_masked_share"] = float((weights == 0).float().mean())
        if "returns" in columns:
            metrics["value_mean"] = float(columns["values"].mean())
            metrics["value_explained_variance"] = explained_variance(
                columns["values"], columns["returns"]
            )
        return metrics

    def _clipped(self, log_ratios: torch.Tensor, advantages: torch.Tensor) -> float:
        algorithm = self._algorithm
        if isinstance(algorithm, CISPO):
            return float((torch.exp(log_ratios) > algorithm.ratio_max).float().mean())
        found = losses.clipped_fraction(
            log_ratios,
            advantages,
            clip_low=algorithm.clip_low,
            clip_high=algorithm.clip_high,
            dual_clip=algorithm.dual_clip,
        )
        return float(found)
