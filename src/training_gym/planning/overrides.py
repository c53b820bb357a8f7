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
    list is named by its number or, for evaluations, by its name: `evals.held_out.samples=4`. A part
    of a section that is absent is refused: `recipe.adapter={"rank": 4}` turns it on.
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
        raise _absent(fields[name].annotation, rest, text, where, name)
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


def _absent(annotation: Any, rest: list[str], text: str, where: str, name: str) -> SpecError:
    """A part of what is not there: absent sections choose something too, so none is made unasked.

    Says how to turn the section on, or, where its type leaves a choice, where to make that.
    """
    kinds = [part for part in typing.get_args(annotation) if _is_settings(part)]
    if len(kinds) != 1:
        return SpecError(f"{where}: {name} is not set", fix=f"give {name} in the file first")
    part = rest[0]
    if part not in kinds[0].model_fields:
        return SpecError(
            f"{where}: {kinds[0].__name__} has no field {part!r}",
            fix=did_you_mean(part, kinds[0].model_fields),
        )
    whole = where.removesuffix("." + ".".join(rest))
    value: Any = _readings(text)[0]
    for inner in reversed(rest):
        value = {inner: value}
    option, _, path = whole.partition(" ")
    return SpecError(
        f"{where}: {name} is not set, and setting a part of it does not turn it on",
        fix=f"to turn it on, write {option} '{path}={json.dumps(value)}'",
    )


def _is_settings(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Settings)
