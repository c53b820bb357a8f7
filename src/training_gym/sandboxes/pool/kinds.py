"""The stock of a pool by kind (`SandboxSpec.key`): one image under two names is one kind."""

from __future__ import annotations

from training_gym.sandboxes.pool.policy import PoolPolicy
from training_gym.sandboxes.pool.shelf import Shelf
from training_gym.spec.sandboxes import Image, KnowsImages, SandboxProvider, SandboxSpec

_NAMED = ("oci", "dockerfile")
"""Kinds of images whose names may change their content, or share it."""


class Kinds:
    """A shelf for each kind that was ever asked for."""

    def __init__(self, provider: SandboxProvider, policy: PoolPolicy) -> None:
        """None yet."""
        self._provider = provider
        self._policy = policy
        self._shelves: dict[str, Shelf] = {}
        self._latest: tuple[SandboxSpec | None, Shelf | None] = (None, None)
        self._digests: dict[Image, str] = {}

    @property
    def shelves(self) -> list[Shelf]:
        """All of them."""
        return list(self._shelves.values())

    def latest(self, spec: SandboxSpec) -> Shelf | None:
        """The shelf found last, if it was for this very value.

        Episodes of one environment ask with one value; its key is a hash.
        """
        latest, shelf = self._latest
        return shelf if latest is spec else None

    async def find(self, spec: SandboxSpec, now: float) -> Shelf:
        """The shelf of this kind, a new one if need be."""
        if spec.image not in self._digests:
            digest, provider = "", self._provider
            if spec.image.kind in _NAMED and isinstance(provider, KnowsImages):
                digest = await provider.image_digest(spec.image)
            self._digests[spec.image] = digest
        key = spec.key_with(self._digests[spec.image])
        if key not in self._shelves:
            self._shelves[key] = Shelf(spec.changed(tags={}), self._policy, now)
        self._latest = (spec, self._shelves[key])
        return self._shelves[key]
