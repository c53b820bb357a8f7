"""Beside the tests: imports of the submission's modules give stand-ins."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

from training_gym.rewards.graders.inside.remote import Wire


class RemoteModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports of the submission's modules give stand-ins."""

    def __init__(self, wire: Wire, names: Sequence[str]) -> None:
        """`names` are the modules the submission consists of, packages dotted."""
        self._gym_wire = wire
        self._names = frozenset(names)

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Ours, if the submission has it."""
        if name not in self._names:
            return None
        is_package = any(other.startswith(f"{name}.") for other in self._names)
        return importlib.machinery.ModuleSpec(name, self, is_package=is_package)

    def create_module(self, spec: Any) -> types.ModuleType:
        """A module that asks for each of its names."""
        return _RemoteModule(self._gym_wire, spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Import it over there, so that what its import raises is raised by the tests' import."""
        module.__dict__["_remote"] = self._gym_wire.ask("import", name=module.__name__)


class _RemoteModule(types.ModuleType):
    def __init__(self, wire: Wire, name: str) -> None:
        super().__init__(name)
        self.__dict__["_gym_wire"] = wire

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            names = self._gym_wire.ask("get", self._remote._gym_number, name="__dict__")
            return [key for key in names if isinstance(key, str) and not key.startswith("_")]
        if name.startswith("__") or "_remote" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._remote, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            setattr(self._remote, name, value)


def install(wire: Wire, names: Sequence[str]) -> None:
    """Make the submission's modules importable here, before any other of the same name."""
    sys.meta_path.insert(0, RemoteModules(wire, names))
