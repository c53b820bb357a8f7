"""`--set recipe.num_steps=3`: single values of a definition changed by dotted path."""

from __future__ import annotations

import contextlib
import json
import typing
from collections.abc import Iterable
from typing import Any, TypeVar

from training_gym.spec.errors import SpecError, did_you_mean
from training_gym.spec.settings import Settings

T = TypeVar("T", bound=Settings)


def apply_sets(value: T, sets: Iterable[str]) -> T:
    """The definition with each `path=value` applied in order.

    A value is read as JSON where it is JSON and the field takes that, else as text. A part of a
    list is named by its number or, for evaluations, by its name: `evals.held_out.samples=4`.
    """
    for assignment in sets:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            raise SpecError(
                f"--set {assignment!r} is not key=value", fix="write --set recipe.num_steps=3"
            )
        value = _replaced(value, path.strip().split("."), text, f"--set {path.strip()}")
    return value


def set_paths(sets: Iterable[str]) -> frozenset[str]:
    """The paths that `sets` assign to."""
    return frozenset(assignment.partition("=")[0].strip() for assignment in sets)


def _replaced(value: T, path: list[str], text: str, where: str) -> T:
    name, *rest = path
    fields = type(value).model_fields
    if name not in fields:
        raise SpecError(
            f"{where}: {type(value).__name__} has no field {name!r}", fix=did_you_mean(name, fields)
        )
    if not rest:
        return _assigned(value, name, text, where)
    child = getattr(value, name)
    if child is None:
        child = _fresh(fields[name].annotation, where, name)
    if isinstance(child, tuple):
        return value.changed(**{name: _item_replaced(child, rest, text, where)})
    if not isinstance(child, Settings):
        raise SpecError(
            f"{where}: {name} is {child!r} and has no fields",
            fix=f"set it whole: --set …{name}=value",
        )
    return value.changed(**{name: _replaced(child, rest, text, where)})


def _item_replaced(
    items: tuple[Any, ...], path: list[str], text: str, where: str
) -> tuple[Any, ...]:
    """The items with the one that the path's first part names changed by the rest of it."""
    names = {str(getattr(item, "name", index)): index for index, item in enumerate(items)}
    names.update({str(index): index for index in range(len(items))})
    chosen, *rest = path
    if chosen not in names or not rest or not isinstance(items[names[chosen]], Settings):
        raise SpecError(f"{where}: there is no {chosen!r}", fix=did_you_mean(chosen, names))
    index = names[chosen]
    changed = _replaced(items[index], rest, text, where)
    return (*items[:index], changed, *items[index + 1 :])


def _assigned(value: T, name: str, text: str, where: str) -> T:
    """The value with one field read from text, trying each reading the field may mean."""
    first: SpecError | None = None
    for reading in _readings(text):
        try:
            return value.changed(**{name: reading})
        except SpecError as error:
            first = first or error
    assert first is not None
    raise SpecError(f"{where}: {first.message}", fix=first.fix)


def _readings(text: str) -> list[Any]:
    """What the text may mean: JSON, the text itself, the kind of a union."""
    readings: list[Any] = []
    with contextlib.suppress(ValueError):
        readings.append(json.loads(text))
    return [*readings, text, {"kind": text}]


def _fresh(annotation: Any, where: str, name: str) -> Settings:
    """The default of an absent part, where its type leaves no choice."""
    kinds = [part for part in typing.get_args(annotation) if _is_settings(part)]
    if len(kinds) != 1:
        raise SpecError(f"{where}: {name} is not set", fix=f"give {name} in the file first")
    return typing.cast("type[Settings]", kinds[0])()


def _is_settings(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Settings)
