"""How often prompts depart from what was sampled, and how often they may."""

from __future__ import annotations

from collections.abc import Iterable

from training_gym.spec.drift import DriftLimits
from training_gym.spec.episodes import Fidelity
from training_gym.spec.errors import DriftError


class DriftBudget:
    """Counts one episode's forks against its limits."""

    def __init__(self, limits: DriftLimits) -> None:
        """Nothing has happened yet."""
        self._limits = limits
        self._judged = 0
        self.forks = 0

    def check(self, fidelity: Fidelity) -> None:
        """Count a prompt; raises `DriftError` where it is one fork too many."""
        self._judged += fidelity.has_history
        if fidelity.kind != "forked":
            return
        self.forks += 1
        limits = self._limits
        if limits.on_drift == "refuse":
            raise DriftError(
                f"recorded tokens cannot be continued: {fidelity.reason}",
                fix="send the history as it was given, or allow forks: on_drift='fork'",
            )
        if self._judged >= limits.judged_from and self.forks > limits.max_rate * self._judged:
            raise DriftError(
                f"{self.forks} of {self._judged} prompts with a history departed from what was "
                f"sampled, {limits.max_rate:.0%} may: {fidelity.reason}",
                fix="keep the history as it was given, or raise max_rate",
            )


def drift_rate(prompts: Iterable[Fidelity]) -> float:
    """Share of the prompts with a history whose recorded tokens could not be continued."""
    judged = [prompt for prompt in prompts if prompt.has_history]
    return sum(prompt.kind == "forked" for prompt in judged) / max(len(judged), 1)


def reword_rate(prompts: Iterable[Fidelity]) -> float:
    """Share of the continued prompts in which the template words an answer in another way."""
    kept = [prompt for prompt in prompts if prompt.recorded_tokens]
    return sum(not prompt.exact for prompt in kept) / max(len(kept), 1)
