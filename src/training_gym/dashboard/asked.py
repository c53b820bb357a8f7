"""From a query string to the index's questions; an unknown parameter is refused, never ignored."""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin

from starlette.datastructures import QueryParams
from starlette.requests import Request

from training_gym.records.index import Range
from training_gym.spec.errors import SpecError, did_you_mean
from training_gym.spec.settings import Settings

Asked = TypeVar("Asked", bound=Settings)


def value(cls: type[Asked], params: QueryParams, *, besides: tuple[str, ...] = ()) -> Asked:
    """A value whose fields are the parameters; repeated ones fill sequences, `a..b` a range.

    Args:
        cls: what to make.
        params: as they came.
        besides: parameters that the caller takes itself.
    """
    fields = cls.model_fields
    found: dict[str, Any] = {}
    for name in params:
        if name in besides:
            continue
        if name not in fields:
            raise SpecError(
                f"{name!r:.60} is no parameter here", fix=did_you_mean(name, [*fields, *besides])
            )
        kind = fields[name].annotation
        text = params[name]
        if get_origin(kind) is tuple:
            found[name] = tuple(item for item in params.getlist(name) if item)
        elif Range in (kind, *get_args(kind)):
            found[name] = bounds(text, name)
        else:
            found[name] = text
    return cls.read(found)


def bounds(text: str, name: str) -> dict[str, float | None]:
    """`low..high`, either end open, or one number for both."""
    low, dots, high = text.partition("..")
    try:
        ends = [float(part) if part.strip() else None for part in (low, high if dots else low)]
    except ValueError:
        raise SpecError(f"{name}={text!r:.40} is no range", fix="write low..high") from None
    return {"low": ends[0], "high": ends[1]}


def whole(request: Request, name: str) -> int:
    """A parameter that must be there and be a whole number."""
    text = request.query_params.get(name, "")
    try:
        return int(text)
    except ValueError:
        raise SpecError(f"{name}={text!r:.40} is no whole number", fix="write one") from None


def several(request: Request, name: str, most: int) -> list[str]:
    """A parameter that is given once or more often."""
    found = [item for item in request.query_params.getlist(name) if item]
    if not 1 <= len(found) <= most:
        raise SpecError(f"{len(found)} values of {name}", fix=f"give 1 to {most}")
    return found


async def body(request: Request, cls: type[Asked]) -> Asked:
    """The JSON body as a value; raises `SpecError`."""
    return cls.read_json(await request.body())
