"""What of the user's source travels with a job: the modules its code needs, and its files.

The archive's root is where the job imports from: `haiku.py` is imported as `haiku`, a package by
its name. Files keep their place beside the module that defines the run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from training_gym.jobs.modules import Module, find_module, imported_names, is_users, with_imports
from training_gym.jobs.notebook import module_source, session_cells
from training_gym.spec.code import NOTEBOOK_MODULE, Code, main_module_name
from training_gym.spec.errors import SourceError, SpecError

LARGE_FILE_BYTES = 50 * 1024 * 1024
"""Larger data files stay where they are and are named by absolute path and hash."""

_LEFT_OUT = frozenset({"__pycache__", ".git", ".venv", ".ipynb_checkpoints"})


@dataclass(frozen=True)
class Origin:
    """The file that defines a run, or the notebook's or prompt's working folder."""

    folder: Path
    """What relative paths in the definition are relative to."""
    module: str | None = None
    """Name under which a job imports the defining file; None: it is no `.py` file."""

    @property
    def prefix(self) -> str:
        """The folder's place in the archive: the defining module's package."""
        package = (self.module or "").rpartition(".")[0]
        return package.replace(".", "/")


@dataclass(frozen=True)
class Captured:
    """Files that travel, by their path in the archive."""

    files: dict[str, Path | bytes] = field(default_factory=dict)


def origin_of_file(filename: str) -> Origin:
    """The origin of a definition written in code that was compiled from `filename`."""
    file = Path(filename)
    if file.suffix != ".py" or not file.is_file() or not is_users(file.resolve()):
        return Origin(Path.cwd())
    file = file.resolve()
    for name, module in list(sys.modules.items()):
        if _same_file(getattr(module, "__file__", None), file):
            return Origin(file.parent, main_module_name() if name == "__main__" else name)
    return Origin(file.parent, file.stem)


def capture(codes: Iterable[Code], origin: Origin, include: Iterable[str] = ()) -> Captured:
    """All source that `codes` need; raises `SourceError` naming what cannot travel.

    Args:
        codes: References to the functions and classes of the run.
        origin: Where the run is defined.
        include: Files, folders or patterns beside the definition that travel as well.
    """
    files: dict[str, Path | bytes] = {}
    start: list[Module] = []
    more: set[str] = set()
    from_session = []
    for code in codes:
        if code.module == NOTEBOOK_MODULE:
            from_session.append(code.ref.partition(":")[2].partition(".")[0])
        else:
            start += _module_of(code, origin)
    if from_session:
        source = module_source(session_cells(), from_session)
        files[f"{NOTEBOOK_MODULE}.py"] = source.encode()
        more |= imported_names(source, "")
    if origin.module is not None:
        start += _defining(origin)
    for module in with_imports(start, more).values():
        files[module.archive_path] = module.file
    files.update(_included(include, origin))
    return Captured(files)


def data_path(path: Path, origin: Origin) -> str:
    """Where a data file lies in the archive: in its place, or apart if it comes from elsewhere."""
    resolved = path.resolve()
    if resolved.is_relative_to(origin.folder):
        return _below(origin.prefix, resolved.relative_to(origin.folder).as_posix())
    place = hashlib.sha256(resolved.parent.as_posix().encode()).hexdigest()[:8]
    return f"data/{place}/{resolved.name}"


def file_sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _module_of(code: Code, origin: Origin) -> list[Module]:
    """The user's module that the reference names; none for an installed one or one of ours."""
    name = code.module
    _require_importable(name)
    if name.partition(".")[0] in sys.stdlib_module_names:
        raise SourceError(
            f"{code.name!r} of {name!r} cannot travel to the job as source",
            fix="wrap it in a function with def at the top level of the file",
        )
    module = find_module(name, [_root(origin), *map(Path, sys.path)])
    if module is None and not _is_installed(name):
        raise SourceError(
            f"the source of {code.name!r} (module {name!r}) cannot be found",
            fix="define it in a .py file beside the one that defines the run",
        )
    return [module] if module else []


def _require_importable(name: str) -> None:
    main = sys.modules.get("__main__")
    if name != main_module_name() or not getattr(main, "__file__", None):
        return
    if "." in name and getattr(main, "__spec__", None) is None:
        raise SourceError(
            f"{name}.py cannot be imported by a job: its name has a dot", fix="rename the file"
        )
    if name in sys.stdlib_module_names or name.startswith("training_gym"):
        raise SourceError(
            f"{name}.py has the name of a library module, which a job would import instead",
            fix="rename the file",
        )


def _is_installed(name: str) -> bool:
    """Whether a module that is not the user's can be imported at all."""
    top = name.partition(".")[0]
    if top in sys.modules:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _defining(origin: Origin) -> list[Module]:
    module = find_module(str(origin.module), [_root(origin)])
    return [module] if module else []


def _root(origin: Origin) -> Path:
    """The folder from which the defining module is imported."""
    depth = (origin.module or "").count(".")
    return origin.folder.parents[depth - 1] if depth else origin.folder


def _included(patterns: Iterable[str], origin: Origin) -> dict[str, Path | bytes]:
    files: dict[str, Path | bytes] = {}
    for pattern in patterns:
        found = [file for match in _matches(pattern, origin.folder) for file in _files(match)]
        if not found:
            raise SpecError(
                f"source_include {pattern!r} matches nothing in {origin.folder}",
                fix="name files or folders relative to the file that defines the run",
            )
        for file in found:
            relative = file.relative_to(origin.folder).as_posix()
            files[_below(origin.prefix, relative)] = file
    return files


def _matches(pattern: str, folder: Path) -> list[Path]:
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise SpecError(
            f"source_include {pattern!r} leads out of {folder}",
            fix="name what lies beside or below the file that defines the run",
        )
    return sorted(folder.glob(pattern))


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and not _LEFT_OUT.intersection(file.relative_to(path).parts)
    )


def _below(prefix: str, path: str) -> str:
    return f"{prefix}/{path}" if prefix else path


def _same_file(one: str | None, other: Path) -> bool:
    return one is not None and Path(one).name == other.name and Path(one).resolve() == other
