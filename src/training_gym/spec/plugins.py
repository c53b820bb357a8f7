"""Implementations found by name: built in, or declared by packages through entry points."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from training_gym.spec.errors import GymError, did_you_mean


class Plugins:
    """The implementations of one seam."""

    def __init__(
        self, what: str, group: str, built_in: Mapping[str, str], error: type[GymError]
    ) -> None:
        """`group` is the entry-point group under which a package declares `name = "module:Class"`.

        `what` names the seam in messages, `error` is what failures are raised as.
        """
        self._what = what
        self._group = group
        self._built_in = built_in
        self._error = error

    def names(self) -> list[str]:
        """All names there are."""
        return sorted({*self._built_in, *entry_points(group=self._group).names})

    def make(self, name: str) -> Any:
        """The implementation of that name, made without arguments."""
        # Our own come first: they work from a source tree, and no package takes their names.
        address = self._built_in.get(name) or self._declared(name)
        if address is None:
            raise self._error(
                f"no {self._what} is called {name!r}", fix=did_you_mean(name, self.names())
            )
        module, _, attribute = address.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)()
        except (ImportError, AttributeError) as error:
            raise self._error(
                f"{self._what} {name!r} ({address}) cannot be loaded: {error}",
                fix="install or repair the package that declares it",
            ) from error

    def _declared(self, name: str) -> str | None:
        found = list(entry_points(group=self._group, name=name))
        return found[0].value if found else None
