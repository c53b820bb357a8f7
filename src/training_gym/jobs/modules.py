"""The user's own modules: where they lie, and which further ones their source imports.

Only source is read; nothing is imported that was not imported before. A module is the user's if
it lies neither in the standard library nor among installed packages nor is it ours.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from training_gym.spec.code import main_module_name
from training_gym.spec.errors import SourceError

OURS = "training_gym"
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True)
class Module:
    """A module of the user's, found without importing it."""

    name: str
    file: Path

    @property
    def is_package(self) -> bool:
        """Whether it is a package's `__init__.py`."""
        return self.file.name == "__init__.py"

    @property
    def root(self) -> Path:
        """The folder from which it is imported by its full name."""
        return self.file.parents[self.name.count(".") + self.is_package]

    @property
    def package(self) -> str:
        """The package that its relative imports start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @property
    def archive_path(self) -> str:
        """Where it lies below the root of the archive."""
        stem = self.name.replace(".", "/")
        return f"{stem}/__init__.py" if self.is_package else f"{stem}.py"


def is_users(file: Path) -> bool:
    """Whether a file is the user's own source."""
    if _INSTALLED.intersection(file.parts):
        return False
    ours = Path(__file__).resolve().parents[1]
    return not any(file.is_relative_to(place) for place in (*_library_folders(), ours))


def find_module(name: str, roots: Iterable[Path]) -> Module | None:
    """The user's module of that name; None if it is nobody's or somebody else's.

    Raises `SourceError` for a compiled module of the user's.
    """
    if name == main_module_name():
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        if main is not None:
            return Module(name, Path(main).resolve())
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == OURS:
        return None
    origin = _origin(name, [str(root) for root in roots])
    if origin is None or not is_users(origin):
        return None
    if origin.suffix != ".py":
        raise SourceError(
            f"module {name!r} ({origin.name}) is compiled and cannot travel as source",
            fix="install it as a package and name that in requirements",
        )
    return Module(name, origin)


def with_imports(start: Iterable[Module], more: Iterable[str] = ()) -> dict[str, Module]:
    """The modules, all of the user's that they import in turn, by name.

    A module of a package brings the whole package, since packages import by many ways.

    Args:
        start: Modules known to be the user's.
        more: Names of further modules, followed where they are the user's.
    """
    found: dict[str, Module] = {}
    todo = list(start)
    roots = [module.root for module in todo]
    roots += [Path(entry or ".").resolve() for entry in sys.path]
    todo += _found(more, roots)
    while todo:
        module = todo.pop()
        if module.name in found:
            continue
        found[module.name] = module
        todo += _package_of(module)
        todo += _found(imported_names(_source(module.file), module.package), roots)
    return found


def imported_names(source: str, package: str, file: str = "<source>") -> set[str]:
    """Full names of all modules that the source may import, wherever in it that stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            names.add(base)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    kept = parts[: len(parts) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _found(names: Iterable[str], roots: list[Path]) -> Iterator[Module]:
    for name in names:
        module = find_module(name, roots)
        if module is not None:
            yield module


def _package_of(module: Module) -> Iterator[Module]:
    """Every module of the regular package that this one belongs to."""
    top = module.root / module.name.partition(".")[0]
    if not (top / "__init__.py").is_file():
        return
    for file in sorted(top.rglob("*.py")):
        inside = file.relative_to(module.root).with_suffix("").parts
        names = inside[:-1] if file.name == "__init__.py" else inside
        if all(part.isidentifier() for part in names):
            yield Module(".".join(names), file)


def _origin(name: str, roots: list[str]) -> Path | None:
    """The file of a module: of the imported one, else looked up without importing anything."""
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if loaded is not None:
        return Path(loaded).resolve()
    places: Iterable[str] | None = roots
    spec = None
    parts = name.split(".")
    for depth in range(len(parts)):
        if places is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[: depth + 1]), list(places))
        if spec is None:
            return None
        places = spec.submodule_search_locations
    has_file = spec is not None and spec.has_location and spec.origin is not None
    return Path(str(spec.origin)).resolve() if spec is not None and has_file else None


def _source(file: Path) -> str:
    return importlib.util.decode_source(file.read_bytes())


def _library_folders() -> set[Path]:
    paths = sysconfig.get_paths()
    return {Path(paths[key]).resolve() for key in ("stdlib", "platstdlib", "purelib", "platlib")}
