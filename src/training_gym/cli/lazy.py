"""Groups of commands that import a command's module only when that command is asked for.

Listing them takes their names and one line each, which stand here in tables; a test compares those
lines with what the commands say of themselves. Commands added to the app in the usual way work too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

SETTINGS: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "add_completion": False,
}
Table: TypeAlias = Mapping[str, tuple[str, str]]
"""Name to where the function or app lies, `module:attribute` below `training_gym.cli`, and what it
does in one line."""


def group(table: Table, **settings: Any) -> typer.Typer:
    """An app whose commands are those of a table, and whatever is added to it."""

    class Tabled(LazyGroup):
        lazy = table

    return typer.Typer(cls=Tabled, **SETTINGS, **settings)


class LazyGroup(TyperGroup):
    """A group whose commands come from a table."""

    lazy: Table = {}

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._all = _Commands(self.lazy, self.commands)
        self.commands = self._all

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands by the table's lines, importing none of them."""
        listed = {name: self._all.listed(name) for name in self._all}
        room = formatter.width - 6 - max(map(len, listed))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(room)) for name, one in listed.items()]
            )


class _Commands(MutableMapping[str, Any]):
    """Commands by name, each made when it is first looked up."""

    def __init__(self, table: Table, added: Mapping[str, Any]) -> None:
        self._table = table
        self._made: dict[str, Any] = dict(added)

    def listed(self, name: str) -> Any:
        """The command, or what stands for it in a list."""
        if name in self._made:
            return self._made[name]
        return TyperCommand(name=name, help=self._table[name][1])

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _load(name, self._table[name][0])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._table
        yield from (name for name in self._made if name not in self._table)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _load(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"training_gym.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        command: Any = get_group(found)
    else:
        app = typer.Typer(**SETTINGS)
        app.command(name)(found)
        command = get_command(app)
    command.name = name
    return command
