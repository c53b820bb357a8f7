"""reasoning-gym's generators and their entries as JSON and back, tuples included.

Some of its scorers compare tuples or look up numbered keys, which plain JSON would lose.
"""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from training_gym.spec.errors import DataError, did_you_mean

_TUPLE, _ITEMS = "$tuple", "$items"


def create_generator(name: str, size: int, seed: int, arguments: dict[str, JsonValue]) -> Any:
    """The `reasoning_gym` data set; raises `DataError` with the nearest name that exists."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise DataError(
            "generated tasks need reasoning-gym, which is not installed",
            fix="pip install 'training-gym[reasoning]'",
        ) from None
    if name not in DATASETS:
        raise DataError(
            f"reasoning-gym has no generator {name!r}", fix=did_you_mean(name, DATASETS)
        )
    known = set(DATASETS[name][1].__dataclass_fields__) - {"size", "seed"}
    for argument in arguments:
        if argument not in known:
            raise DataError(
                f"the generator {name!r} has no argument {argument!r}",
                fix=did_you_mean(argument, known)
                if argument not in ("size", "seed")
                else f"give {argument} beside name, not among the arguments",
            )
    try:
        return reasoning_gym.create_dataset(
            name, size=size, seed=seed, **_composed(name, arguments)
        )
    except (AssertionError, TypeError, ValueError, KeyError) as error:
        raise DataError(
            f"the generator {name!r} refuses its arguments: {error or type(error).__name__}",
            fix=f"change them; it knows {', '.join(sorted(known))}",
        ) from None


def encode_entry(value: Any) -> JsonValue:
    """JSON that `decode_entry` turns back into an equal value."""
    if isinstance(value, tuple):
        return {_TUPLE: [encode_entry(item) for item in value]}
    if isinstance(value, list):
        return [encode_entry(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and not {_TUPLE, _ITEMS} & set(value):
            return {key: encode_entry(item) for key, item in value.items()}
        return {_ITEMS: [[encode_entry(key), encode_entry(item)] for key, item in value.items()]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise DataError(
        f"the generator made a {type(value).__name__}, which cannot be kept as JSON",
        fix="choose another generator",
    )


def decode_entry(value: Any) -> Any:
    """The value that `encode_entry` was given."""
    if isinstance(value, list):
        return [decode_entry(item) for item in value]
    if isinstance(value, dict):
        if set(value) == {_TUPLE}:
            return tuple(decode_entry(item) for item in value[_TUPLE])
        if set(value) == {_ITEMS}:
            return {decode_entry(key): decode_entry(item) for key, item in value[_ITEMS]}
        return {key: decode_entry(item) for key, item in value.items()}
    return value


def _composed(name: str, arguments: dict[str, JsonValue]) -> dict[str, Any]:
    """`composite` wants its members as objects of its own."""
    members = arguments.get("datasets")
    if name != "composite" or not isinstance(members, list):
        return dict(arguments)
    from reasoning_gym.composite import DatasetSpec

    built = [DatasetSpec(**member) for member in members if isinstance(member, dict)]
    return {**arguments, "datasets": built}
