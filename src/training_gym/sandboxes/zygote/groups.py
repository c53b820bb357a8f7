"""The control groups of one provider: each given to one sandbox after another."""

from __future__ import annotations

from collections.abc import Sequence

from training_gym.sandboxes.zygote import cgroups
from training_gym.spec.sandboxes import Resources


class Groups:
    """Groups in use, by sandbox, and those that wait for the next one."""

    def __init__(self, hierarchies: Sequence[cgroups.Hierarchy], prefix: str) -> None:
        """None are made before the first sandbox; without hierarchies, none at all.

        Args:
            hierarchies: Where they can be made.
            prefix: How their names begin.
        """
        self.hierarchies = tuple(hierarchies)
        self._prefix = prefix
        self._made = 0
        self._spare: list[cgroups.Group] = []
        self._of: dict[str, tuple[cgroups.Group, int]] = {}
        self.controllers = {name for tree in self.hierarchies for name in tree.controllers}

    def take(self, limits: Resources) -> cgroups.Group | None:
        """One with these limits, for a sandbox that is being made."""
        if not self.hierarchies:
            return None
        for _ in range(len(self._spare)):
            group = self._spare.pop()
            try:
                group.limit(limits)
            except OSError:  # memory of the one before has not all come back yet
                self._spare.insert(0, group)
                continue
            return group
        self._made += 1
        group = cgroups.Group(self.hierarchies, f"{self._prefix}{self._made}")
        group.limit(limits)
        return group

    def assign(self, sandbox_id: str, group: cgroups.Group | None) -> None:
        """The sandbox in it has an id now."""
        if group is not None:
            self._of[sandbox_id] = (group, group.oom_kills())

    def of(self, sandbox_id: str) -> cgroups.Group | None:
        """The one a living sandbox is in."""
        return self._of[sandbox_id][0] if sandbox_id in self._of else None

    def oom_kills(self, sandbox_id: str) -> int:
        """Processes of a sandbox that the kernel killed for lack of memory."""
        if sandbox_id not in self._of:
            return 0
        group, before = self._of[sandbox_id]
        return group.oom_kills() - before

    def release(self, sandbox_id: str) -> None:
        """All processes of the sandbox are gone."""
        found = self._of.pop(sandbox_id, None)
        if found is not None:
            self._spare.insert(0, found[0])

    def remove(self) -> None:
        """Remove those that wait, and what is left of others with our names. Blocks."""
        spare, self._spare = self._spare, []
        for group in spare:
            group.remove()
        cgroups.remove_stale(self.hierarchies, self._prefix)
