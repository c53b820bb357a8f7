"""The base of every value that travels: frozen, closed, JSON both ways."""

from __future__ import annotations

import types
import typing
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from training_gym.spec.errors import SpecError, did_you_mean

if typing.TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class Settings(BaseModel):
    """A frozen, closed value; the docstring beneath a field feeds help, docs and JSON schema."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        ser_json_inf_nan="strings",
        defer_build=True,  # a command that lists runs builds no validator of a recipe
    )

    def __init__(self, **values: Any) -> None:
        """Build from keyword arguments; a wrong one is a two-line `SpecError`."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise spec_error(type(self), error) from None

    @classmethod
    def read(cls, data: Any) -> Self:
        """Validate plain data (from JSON, TOML, a command line); raises `SpecError`."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise spec_error(cls, error) from None

    @classmethod
    def read_json(cls, text: str | bytes) -> Self:
        """Validate a JSON document; raises `SpecError`."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise spec_error(cls, error) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        kind = type(self)
        if name not in kind.model_fields:
            raise SpecError(
                f"{kind.__name__} has no field {name!r}", fix=did_you_mean(name, kind.model_fields)
            )
        raise SpecError(
            f"{kind.__name__}.{name} cannot be set: values are frozen",
            fix=f"make another one: value.changed({name}=…)",
        )

    def changed(self, **values: Any) -> Self:
        """A validated copy with the given fields replaced and all fields set so far kept set."""
        kept = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**kept, **values})


def spec_error(cls: type[BaseModel], error: ValidationError) -> SpecError:
    """The first of pydantic's findings as our two lines."""
    # A misspelt field comes first: it explains the one that is then missing.
    first = min(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    path = [str(part) for part in first["loc"]]
    where = ".".join([cls.__name__, *path])
    if first["type"] == "extra_forbidden":
        owner = _model_at(cls, first["loc"][:-1]) or cls
        return SpecError(
            f"{owner.__name__} has no field {path[-1]!r}",
            fix=did_you_mean(path[-1], owner.model_fields),
        )
    if first["type"] == "missing":
        return SpecError(f"{where} is missing", fix=f"give {path[-1]}=…")
    if first["type"] == "union_tag_invalid":
        context = first.get("ctx", {})
        known = [name.strip("' ") for name in str(context.get("expected_tags", "")).split(",")]
        return SpecError(
            f"{where}: {context.get('tag')!r} is not one of the kinds",
            fix=did_you_mean(str(context.get("tag")), known),
        )
    if first["type"] in ("tuple_type", "list_type") and isinstance(first.get("input"), str):
        given = first["input"]
        return SpecError(
            f"{where} = {_short(given)} is one text where several are taken",
            fix=f"write {path[-1]}=[{_short(given)}]",
        )
    message = first["msg"].removeprefix("Value error, ")
    said = f"{message[:1].lower()}{message[1:]}"
    if first["type"] == "value_error" and isinstance(first.get("input"), dict):
        return SpecError(f"{where}: {said}", fix=f"change {where}")
    return SpecError(f"{where} = {_short(first.get('input'))}: {said}", fix=_bound(first, where))


def _bound(error: ErrorDetails, where: str) -> str:
    """What to give instead of a number out of its bounds."""
    words = {"le": "at most", "lt": "less than", "ge": "at least", "gt": "more than"}
    bound = next(((words[k], v) for k, v in error.get("ctx", {}).items() if k in words), None)
    return f"change {where}" if bound is None else f"give {bound[0]} {bound[1]}"


def _model_at(cls: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The model class a location leads to, through containers and unions."""
    here: type[BaseModel] = cls
    for part in path:
        field = here.model_fields.get(str(part))
        candidates = _models_in(field.annotation) if field else []
        if field is None or not candidates:
            named = [m for m in _models_in(here) if getattr(m, "__name__", "") == str(part)]
            if named:
                here = named[0]
            continue
        here = candidates[0]
    return here


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in typing.get_args(annotation) for model in _models_in(part)]


def _short(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
