"""What somebody says about a run, as it comes from a page."""

from __future__ import annotations

from pydantic import Field

from training_gym.spec.settings import Settings


class NewNote(Settings):
    """What somebody has to say."""

    text: str


class TagChange(Settings):
    """Tags to add and to remove."""

    add: tuple[str, ...] = Field((), max_length=20)
    remove: tuple[str, ...] = Field((), max_length=20)


class Acknowledgement(Settings):
    """Alerts that somebody has seen."""

    alerts: tuple[str, ...] = Field(min_length=1, max_length=200)
    note: str = Field("", max_length=2000)
    withdraw: bool = False
    """They are open again."""
