"""Making findings."""

from __future__ import annotations

from training_gym.spec.errors import GymError
from training_gym.spec.findings import Finding


def error(code: str, message: str, fix: str) -> Finding:
    """What would make the run fail."""
    return Finding(code=code, severity="error", message=message, fix=fix)


def warning(code: str, message: str, fix: str) -> Finding:
    """What is probably not meant."""
    return Finding(code=code, severity="warning", message=message, fix=fix)


def note(code: str, message: str, fix: str = "") -> Finding:
    """What is worth knowing."""
    return Finding(code=code, severity="note", message=message, fix=fix)


def raised(code: str, cause: GymError) -> Finding:
    """An error that another room raised, as a finding."""
    return error(code, cause.message, cause.fix)
