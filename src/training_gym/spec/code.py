"""Code travels as source, never as pickles: a reference that another process can load.

`Code.of(target)` turns a function, a class or an instance into `module:qualname` with JSON
arguments, and refuses by name what has no such address. The source itself is packed by
`jobs.source`.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import sys
import types
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, JsonValue, PrivateAttr, TypeAdapter

from training_gym.spec.errors import SourceError
from training_gym.spec.settings import Settings

NOTEBOOK_MODULE = "notebook_cells"
"""Module that a notebook's or REPL's code becomes inside a job."""

INSIDE_JOB = "TRAINING_GYM_INSIDE_JOB"
"""Environment variable set in every process of a job."""


def inside_job() -> bool:
    """Whether this process belongs to a job (then `launch()` and `train()` do nothing)."""
    return os.environ.get(INSIDE_JOB) == "1"


class ResultsAsked(BaseException):
    """Ends the import of a module, inside a job, where it asks for the results of a launch.

    What the module defines before that point is there; what follows is for whoever launched.
    """

    def __init__(self) -> None:
        """Remember the module that is being imported."""
        super().__init__("the results of a run are not known inside its job")
        self.modules: dict[str, types.ModuleType] = {}
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            name = frame.f_globals.get("__name__")
            if frame.f_code.co_name == "<module>" and name in sys.modules:
                self.modules[name] = sys.modules[name]
            frame = frame.f_back


def import_definitions(name: str) -> types.ModuleType:
    """Import a module as far as it goes without the results of a launch in it."""
    try:
        return importlib.import_module(name)
    except ResultsAsked as reached:
        if name not in reached.modules:
            raise
        sys.modules[name] = reached.modules[name]
        return reached.modules[name]


class Code(Settings):
    """A function, class or instance that another process can load by name."""

    ref: str
    """`module:qualname`."""
    kwargs: dict[str, JsonValue] | None = None
    """JSON arguments to call it with; None: the object itself."""

    _target: Any = PrivateAttr(default=None)

    @classmethod
    def of(cls, target: Any) -> Code:
        """The reference to `target`; raises `SourceError` if it cannot travel as source."""
        if isinstance(target, Code):
            return target
        if isinstance(target, dict) and set(target) <= {"ref", "kwargs"} and "ref" in target:
            return cls.read(target)
        if isinstance(target, str):
            return cls(ref=_named(target))
        if not callable(target) and type(target).__module__ == "builtins":
            raise SourceError(
                f"{target!r:.60} is neither a function nor a class nor an instance of one",
                fix="give the function itself, or its name as 'module:name'",
            )
        if inspect.isfunction(target) or inspect.isclass(target):
            code = cls(ref=_address(target), kwargs=None)
        else:
            code = cls(ref=_address(type(target)), kwargs=_arguments(target))
        code._target = target
        return code

    @property
    def name(self) -> str:
        """The last part of the qualified name, for people."""
        return self.ref.partition(":")[2].rpartition(".")[2] or self.ref

    @property
    def module(self) -> str:
        """The module part of the reference."""
        return self.ref.partition(":")[0]

    def load(self) -> Any:
        """The object itself, imported if this process does not hold it; raises `SourceError`."""
        if self._target is not None:
            return self._target
        module_name, _, qualname = _named(self.ref).partition(":")
        try:
            found: Any = import_definitions(module_name)
        except ModuleNotFoundError as error:
            raise SourceError(
                f"cannot import {module_name!r} for {self.ref!r}: no module {error.name!r}",
                fix="install it, or name its folder in source_include",
            ) from error
        for part in qualname.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                raise SourceError(
                    f"{module_name} has no {qualname!r}", fix=f"check the name {self.ref!r}"
                ) from None
        return found if self.kwargs is None else found(**self.kwargs)


def _as_code(value: Any) -> Any:
    return value if isinstance(value, Code) else Code.of(value)


CodeRef = Annotated[Code, BeforeValidator(_as_code)]
"""A field that takes a function, class, instance or `"module:name"` and keeps a `Code`."""


def _named(ref: str) -> str:
    if not all(ref.partition(":")[::2]):
        raise SourceError(f"{ref!r} does not name a function", fix="write it as 'module:name'")
    return ref


def main_module_name() -> str:
    """The name under which a job imports what is `__main__` here."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in ("__main__", None):
        return str(spec.name)
    path = getattr(main, "__file__", None)
    if path and Path(path).suffix == ".py" and "ipykernel" not in str(path):
        return Path(path).stem
    return NOTEBOOK_MODULE


def _address(target: Any) -> str:
    name = getattr(target, "__qualname__", repr(target))
    if "<lambda>" in name:
        raise SourceError(
            f"a lambda ({target.__module__}.{name}) cannot travel to the job as source",
            fix="write it as a function with def at the top level of the file",
        )
    if "<locals>" in name:
        outer, _, inner = name.partition(".<locals>.")
        raise SourceError(
            f"{inner!r} is defined inside {outer!r} and cannot travel to the job as source",
            fix=f"move {inner!r} to the top level, or make it a class whose arguments are JSON",
        )
    module = target.__module__
    if module == "__main__":
        module = main_module_name()
    if module == NOTEBOOK_MODULE:
        _require_source(target, name)
    return f"{module}:{name}"


def _require_source(target: Any, name: str) -> None:
    # A class of a notebook has no file that inspect could find, but its functions have.
    members = vars(target).values() if inspect.isclass(target) else (target,)
    try:
        for member in filter(inspect.isfunction, members):
            inspect.getsource(member)
    except (OSError, TypeError):
        raise SourceError(
            f"{name!r} was typed at a prompt that keeps no source, so it cannot travel to the job",
            fix="put it in a .py file or a notebook cell",
        ) from None


_json: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


def _arguments(target: Any) -> dict[str, JsonValue]:
    """The JSON arguments from which an equal instance can be built."""
    kind = type(target).__qualname__
    if isinstance(target, BaseModel):
        raw: dict[str, Any] = target.model_dump(mode="json", exclude_unset=True)
    elif dataclasses.is_dataclass(target) and not isinstance(target, type):
        raw = {
            field.name: getattr(target, field.name)
            for field in dataclasses.fields(target)
            if field.init
        }
    elif not getattr(target, "__dict__", {}):
        raw = {}
    else:
        raise SourceError(
            f"an instance of {kind!r} holds state that cannot travel to the job as source",
            fix=f"make {kind} a dataclass whose fields are JSON values",
        )
    try:
        return _json.validate_python(raw)
    except ValueError:
        raise SourceError(
            f"an argument of {kind!r} is not a JSON value: {raw!r:.80}",
            fix="use numbers, strings, lists and dictionaries only",
        ) from None
