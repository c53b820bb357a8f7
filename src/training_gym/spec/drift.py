"""How far an episode's prompts may depart from the tokens that were sampled in it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from training_gym.spec.settings import Settings


class DriftLimits(Settings):
    """What happens where recorded tokens cannot be continued."""

    on_drift: Literal["fork", "refuse"] = "fork"
    """`fork`: the history is rendered anew and is context there; `refuse`: the request fails."""
    max_rate: float = Field(1.0, ge=0, le=1)
    """Largest share of an episode's requests with a history that may fork."""
    judged_from: int = Field(4, ge=1)
    """Requests with a history before the share is judged."""
