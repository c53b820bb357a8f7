"""`file.py:config`: a definition found in a file, as the command line names it."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from training_gym.spec.code import ResultsAsked, import_definitions, inside_job
from training_gym.spec.errors import GymError, SourceError, SpecError, did_you_mean
from training_gym.spec.run import RunSpec

D = TypeVar("D", bound=RunSpec)

_reading: ContextVar[bool] = ContextVar("training_gym_reading_a_definition", default=False)


def may_launch() -> bool:
    """Whether `launch()` does anything: not inside a job, nor while a definition is read."""
    return not inside_job() and not _reading.get()


def read_definition(where: str, kind: type[D]) -> D:
    """The definition that `where` names: `file.py`, `file.py:name` or `package.module:name`.

    The file is imported under its own name; `launch()` and `train()` in it do nothing meanwhile.
    Without a name there must be exactly one definition in it.
    """
    place, name = _split(where)
    module = _imported(place)
    found = {key: value for key, value in vars(module).items() if isinstance(value, kind)}
    if name:
        if name not in found:
            raise SpecError(
                f"{place} defines no {kind.__name__} called {name!r}",
                fix=did_you_mean(name, found) if found else f"add {name} = {kind.__name__}(…)",
            )
        return found[name]
    values = list({id(value): value for value in found.values()}.values())
    if not values:
        raise SpecError(
            f"{place} defines no {kind.__name__}", fix=f"add config = {kind.__name__}(…) to it"
        )
    if len(values) > 1:
        raise SpecError(
            f"{place} defines {len(values)}: {', '.join(found)}",
            fix=f"say which: {place}:{next(iter(found))}",
        )
    return values[0]


def _split(where: str) -> tuple[str, str]:
    place, colon, name = where.rpartition(":")
    if not colon or not name.isidentifier() or len(place) == 1:  # `C:\\runs\\haiku.py`
        return where, ""
    return place, name


def _imported(place: str) -> ModuleType:
    with _nothing_launches():
        if place.endswith(".py"):
            return _import_file(Path(place))
        sys.path.insert(0, str(Path.cwd()))
        try:
            return import_definitions(place)
        except ModuleNotFoundError as error:
            if error.name is None or not place.startswith(error.name):
                raise
            raise SpecError(
                f"there is no file or module {place!r}", fix="give the path of a .py file"
            ) from None


def _import_file(path: Path) -> ModuleType:
    file = path.expanduser().resolve()
    if not file.is_file():
        raise SpecError(f"there is no file {str(path)!r}", fix="check the path")
    name = file.stem
    if "." in name or name in sys.stdlib_module_names or name == "training_gym":
        raise SourceError(
            f"{path.name} cannot be imported by a job under the name {name!r}",
            fix="rename the file to a word of its own",
        )
    known = sys.modules.get(name)
    if known is not None:
        if Path(getattr(known, "__file__", None) or "").resolve() == file:
            return known
        raise SourceError(
            f"{path.name} has the name of module {name!r}, which is in use", fix="rename the file"
        )
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, "a .py file has a loader"
    assert spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ResultsAsked:
        return module
    except GymError:
        del sys.modules[name]
        raise
    except Exception as error:  # the boundary to the user's file
        del sys.modules[name]
        fix = f"mend {path.name}"
        if "no known parent package" in str(error):
            fix = f"name it as a module, such as package.{name}, from the package's parent folder"
        raise SourceError(_fault(error, file), fix=fix) from error
    return module


def _fault(error: Exception, file: Path) -> str:
    """Where in the user's file it failed, and how."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)]
    own = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    line = error.lineno if isinstance(error, SyntaxError) else (own or lines)[-1]
    what = error.msg if isinstance(error, SyntaxError) else error
    return f"{file.name}, line {line}: {type(error).__name__}: {what}"


@contextmanager
def _nothing_launches() -> Iterator[None]:
    token = _reading.set(True)
    try:
        yield
    finally:
        _reading.reset(token)
