"""A notebook's or prompt's code as one module: the cells that some names need, in the order run.

The history of what was executed is replayed as far as it is needed. A name used while a cell runs
means its newest binding before that cell; a name used inside a function means the newest of all,
as it does in the session itself.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import re
import symtable
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from training_gym.spec.errors import SourceError

RUNNING_MAGICS = frozenset({"time", "timeit", "capture", "prun"})
"""Cell magics whose body is Python that runs in the session."""

SESSION_ONLY = frozenset({"get_ipython", "display", "In", "Out", "exit", "quit"})
"""Names that exist in a session but not in a job."""

_PROMPT_INPUT = re.compile(r"<python-input-(\d+)>|<stdin>-(\d+)")
"""What Python 3.13 and later call an input typed at their prompt, with its number."""


@dataclass(frozen=True)
class Cell:
    """One executed input, without what only the session understands."""

    source: str
    binds: frozenset[str]
    """Names it binds, imports included."""
    imports: frozenset[str]
    """Names it binds by import."""
    changes: frozenset[str]
    """Names whose objects it changes in place."""
    needs_now: frozenset[str]
    """Names it uses while it runs, before it binds them itself."""
    needs_later: frozenset[str]
    """Names its functions use when they are called."""
    unrepeatable: dict[str, str] = field(default_factory=dict)
    """Names bound by what cannot be replayed, with the reason."""
    star: bool = False
    """It imports everything from some module."""


def session_cells() -> list[Cell]:
    """Everything executed in this session so far, oldest first; empty where no source is kept."""
    return [cell for source in _session_sources() if (cell := read_cell(source)) is not None]


def module_source(cells: Sequence[Cell], names: Iterable[str]) -> str:
    """The module in which all `names` mean what they mean now; raises `SourceError`."""
    chosen = {index for index, cell in enumerate(cells) if cell.star}
    todo = [_Need(name, None, len(cells)) for name in names]
    todo += [need for index in chosen for need in _needs(cells, index)]
    seen: set[_Need] = set()
    while todo:
        need = todo.pop()
        if need in seen:
            continue
        seen.add(need)
        index = _binder(cells, need)
        if index is None:
            _require_known(cells, need)
        elif need.name in cells[index].unrepeatable:
            raise _unrepeatable(need.name, cells[index].unrepeatable[need.name])
        elif index not in chosen:
            chosen.add(index)
            todo += _needs(cells, index)
    return _joined([cells[index].source for index in sorted(chosen)])


@dataclass(frozen=True)
class _Need:
    """A name, as it is bound before cell number `before`, used by cell number `user`."""

    name: str
    user: int | None
    before: int


def read_cell(source: str) -> Cell | None:
    """What a cell binds and needs; None for one that never ran because it is not Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    kept: list[ast.stmt] = []
    unrepeatable: dict[str, str] = {}
    for statement in _flattened(tree.body):
        reason = _session_only(statement)
        if reason is None:
            kept.append(statement)
        else:
            unrepeatable.update(dict.fromkeys(_bound_by(statement), reason))
    text = source if kept == tree.body else "\n".join(ast.unparse(statement) for statement in kept)
    return _analysed(text, kept, unrepeatable)


def _analysed(text: str, kept: list[ast.stmt], unrepeatable: dict[str, str]) -> Cell:
    binds, imports, changes = set(unrepeatable), set[str](), set[str]()
    now, later = set[str](), set[str]()
    for statement in kept:
        table = symtable.symtable(ast.unparse(statement), "<cell>", "exec")
        symbols = table.get_symbols()
        changed = _changed_by(statement)
        used = {symbol.get_name() for symbol in symbols if symbol.is_referenced()} | changed
        for child in table.get_children():
            _collect(child, used, later)
        now |= used - binds
        changes |= changed
        imports |= {symbol.get_name() for symbol in symbols if symbol.is_imported()}
        binds |= {symbol.get_name() for symbol in symbols if symbol.is_assigned()} | imports
    return Cell(
        source=text,
        binds=frozenset(binds),
        imports=frozenset(imports),
        changes=frozenset(changes),
        needs_now=frozenset(now),
        needs_later=frozenset(later),
        unrepeatable=unrepeatable,
        star=any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in kept),
    )


_AT_ONCE = frozenset({"listcomp", "setcomp", "dictcomp", "genexpr"})


def _collect(table: symtable.SymbolTable, now: set[str], later: set[str]) -> None:
    """Add the globals that a scope uses to those needed now or, in a function, later."""
    called = table.get_type() == "function" and table.get_name() not in _AT_ONCE
    target = later if called else now
    target.update(symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
    for child in table.get_children():
        _collect(child, target, later)


def _needs(cells: Sequence[Cell], index: int) -> list[_Need]:
    cell = cells[index]
    now = [_Need(name, index, index) for name in sorted(cell.needs_now)]
    return now + [_Need(name, index, len(cells)) for name in sorted(cell.needs_later)]


def _binder(cells: Sequence[Cell], need: _Need) -> int | None:
    """The newest cell that binds the name or, unless it is a module, changes its object."""
    bound = _newest(need.before, lambda index: need.name in cells[index].binds)
    if bound is None or need.name in cells[bound].imports:
        return bound
    return _newest(need.before, lambda index: index == bound or need.name in cells[index].changes)


def _newest(before: int, wanted: Callable[[int], bool]) -> int | None:
    return next((index for index in reversed(range(before)) if wanted(index)), None)


def _require_known(cells: Sequence[Cell], need: _Need) -> None:
    """Raise `SourceError` if the name means something in the session that no cell made."""
    name = need.name
    binds = cells[need.user].binds if need.user is not None else frozenset()
    used_by = f" used by {min(binds)!r}" if binds else ""
    if name in SESSION_ONLY:
        raise SourceError(
            f"{name!r}{used_by} exists only in a notebook", fix=f"leave {name} out of the function"
        )
    explained = name in binds or hasattr(builtins, name) or any(cell.star for cell in cells)
    if name in vars(sys.modules["__main__"]) and not explained and not _is_dunder(name):
        raise SourceError(
            f"{name!r}{used_by} was made by no cell that ran, so its source cannot be found",
            fix=f"define {name} in a cell, or import it from a .py file",
        )


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _unrepeatable(name: str, reason: str) -> SourceError:
    return SourceError(
        f"{name!r} comes from {reason}, which a job cannot repeat",
        fix=f"compute {name} in plain Python, or write its value into the cell",
    )


def _flattened(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements, with the bodies of `%%time` and the like in place of the magic."""
    statements: list[ast.stmt] = []
    for statement in body:
        inner = _magic_body(statement)
        statements += [statement] if inner is None else _flattened(inner)
    return statements


def _magic_body(statement: ast.stmt) -> list[ast.stmt] | None:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    call = statement.value
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "run_cell_magic"):
        return None
    values = [arg.value if isinstance(arg, ast.Constant) else None for arg in call.args]
    if len(values) != 3 or values[0] not in RUNNING_MAGICS:
        return None
    try:
        return ast.parse(_transformed(str(values[2]))).body
    except SyntaxError:
        return None


def _session_only(statement: ast.stmt) -> str | None:
    """Why a top-level statement cannot be replayed: a magic, a shell line, an await."""
    for node in _outside_functions(statement):
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            return "an await at the top level of a cell"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "get_ipython":
                return "a magic or shell command"
            if node.func.id == "display" and isinstance(statement, ast.Expr):
                return "a display"
    return None


def _outside_functions(statement: ast.AST) -> Iterable[ast.AST]:
    yield statement
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    for child in ast.iter_child_nodes(statement):
        yield from _outside_functions(child)


def _bound_by(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _changed_by(statement: ast.stmt) -> set[str]:
    """Names whose objects the statement changes: `x += 1`, `x[k] = …`, `x.a = …`, `x.append(…)`."""
    changed: set[str] = set()
    for node in _outside_functions(statement):
        if isinstance(node, ast.AugAssign):
            changed |= _root_name(node.target)
        elif isinstance(node, ast.Subscript | ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                changed |= _root_name(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            changed |= _root_name(function) if isinstance(function, ast.Attribute) else set()
    return changed


def _root_name(node: ast.AST) -> set[str]:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _joined(sources: list[str]) -> str:
    """The cells one after another, with their `__future__` imports once, at the top."""
    future = "from __future__ import annotations"
    wanted = any(future in source for source in sources)
    cells = [re.sub(r"(?m)^from __future__ import .*$", "", source).strip() for source in sources]
    head = [future] if wanted else []
    return "\n\n\n".join([*head, *(cell for cell in cells if cell)]) + "\n"


def _session_sources() -> list[str]:
    shell = _shell()
    if shell is not None:
        return [source for source in shell.history_manager.input_hist_parsed if source.strip()]
    numbered = {
        int(found[1] or found[2]): entry
        for name, entry in list(linecache.cache.items())
        if (found := _PROMPT_INPUT.fullmatch(name)) and len(entry) > 2
    }
    # Python 3.14 keeps them apart, in the order typed, under every function of an input.
    kept = getattr(linecache, "_interactive_cache", {}).values()
    entries = [numbered[number] for number in sorted(numbered)]
    entries += {id(entry): entry for entry in kept}.values()
    return ["".join(entry[2]) for entry in entries]


def _shell() -> Any:
    """IPython's shell of this session, without importing IPython."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _transformed(source: str) -> str:
    shell = _shell()
    return str(shell.transform_cell(source)) if shell is not None else source
