"""What preflight checks report."""

from __future__ import annotations

from typing import Literal

from training_gym.spec.settings import Settings


class Finding(Settings):
    """One thing a check found, with the offending value and a remedy."""

    code: str
    """Stable, such as `reward.raises`."""
    severity: Literal["error", "warning", "note"]
    message: str
    fix: str = ""
