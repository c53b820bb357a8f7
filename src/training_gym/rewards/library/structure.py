"""Completions that must be JSON of a given form, by `jsonschema`."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

from pydantic import JsonValue

from training_gym.spec.episodes import Episode
from training_gym.spec.errors import RewardError
from training_gym.spec.settings import Settings

_NOTHING = object()


class JsonSchema(Settings):
    """1 if the completion holds JSON that fits a schema, else 0 (jsonschema, draft 2020-12).

    The JSON is the whole completion, the last fenced block, or what lies between the first and
    the last bracket. There is no partial credit.
    """

    json_schema: dict[str, JsonValue]
    only_json: bool = False
    """Nothing but the JSON may stand in the completion."""

    def __call__(self, episode: Episode) -> float:
        """Find the JSON and validate it."""
        value = _parse(episode.completion) if self.only_json else _find(episode.completion)
        if value is _NOTHING:
            return 0.0
        validator = _validator(json.dumps(self.json_schema, sort_keys=True))
        try:
            return float(validator.is_valid(value))
        except RecursionError:
            return 0.0


def _find(text: str) -> Any:
    """The value of the first of the three places that is JSON."""
    whole = _parse(text)
    if whole is not _NOTHING:
        return whole
    fences = [match.start() for match in re.finditer("```", text)][-2:]
    if len(fences) == 2:
        block = text[fences[0] + 3 : fences[1]].lstrip().removeprefix("json")
        fenced = _parse(block)
        if fenced is not _NOTHING:
            return fenced
    first = re.search(r"[{\[]", text)
    last = max(text.rfind("}"), text.rfind("]"))
    return _NOTHING if first is None else _parse(text[first.start() : last + 1])


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _NOTHING


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


@functools.lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    try:
        import jsonschema
        import referencing
    except ImportError:
        raise RewardError(
            "JsonSchema needs jsonschema, which is not installed",
            fix="pip install 'training-gym[json]'",
        ) from None
    value = json.loads(schema)
    kind = jsonschema.Draft202012Validator
    try:
        kind.check_schema(value)
    except jsonschema.SchemaError as error:
        raise RewardError(
            f"json_schema is not a schema: {error.message:.120}", fix="mend json_schema"
        ) from None
    # A registry of our own: a schema never makes a reward fetch something from the network.
    return kind(value, registry=referencing.Registry())
