"""What one provider owns on this machine, taken at first use: a folder, control groups, a store."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from pathlib import Path

from training_gym.sandboxes.zygote import cgroups
from training_gym.sandboxes.zygote.groups import Groups
from training_gym.sandboxes.zygote.owner import claim_folder, group_prefix
from training_gym.sandboxes.zygote.store import Store


class Claim:
    """The folder and what lies in it or is named after it."""

    def __init__(self, *, uid: int | None, use_cgroups: bool) -> None:
        """Nothing is taken yet.

        Args:
            uid: Who shall own the folder; None: we.
            use_cgroups: Whether to look for control groups.
        """
        self._uid = uid
        self._use_cgroups = use_cgroups
        self._folder: Path | None = None
        self._store: Store | None = None
        self._numbers = itertools.count(1)
        self.groups = Groups((), "")
        """The control groups; without any before the folder is taken."""

    @property
    def folder(self) -> Path:
        """Ours alone."""
        if self._folder is None:
            hierarchies = cgroups.find() if self._use_cgroups else []
            self._folder = claim_folder(hierarchies, self._uid)
            self.groups = Groups(hierarchies, group_prefix(self._folder))
        return self._folder

    @property
    def store(self) -> Store:
        """Where snapshots lie."""
        if self._store is None:
            self._store = Store(self.folder / "store")
        return self._store

    @property
    def controls_memory(self) -> bool:
        """Whether the groups do."""
        return "memory" in self.groups.controllers

    def new_number(self) -> int:
        """For the name of something of ours."""
        return next(self._numbers)

    async def give_up(self) -> None:
        """Remove the groups and the folder."""
        if self._folder is None:
            return
        await asyncio.to_thread(self.groups.remove)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        self._folder = None
