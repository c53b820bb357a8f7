"""The base of values read from task.toml: what Harbor ignores is kept track of, not refused."""

from __future__ import annotations

import types
import typing
from typing import Any

from pydantic import BaseModel, ConfigDict

from training_gym.spec.settings import Settings


class HarborModel(Settings):
    """Frozen; unknown keys are left out, as Harbor does: `unknown_keys` names them."""

    model_config = ConfigDict(extra="ignore", ser_json_inf_nan="constants")


def unknown_keys(cls: type[BaseModel], data: Any, path: str = "") -> list[str]:
    """Dotted names of keys in `data` that the model knows nothing of."""
    if not isinstance(data, dict):
        return []
    found = []
    for key, value in data.items():
        where = f"{path}{key}"
        field = cls.model_fields.get(key)
        if field is None:
            found.append(where)
            continue
        for model in _models(field.annotation):
            items = value if isinstance(value, list) else [value]
            found += [name for item in items for name in unknown_keys(model, item, f"{where}.")]
    return found


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in typing.get_args(annotation) for model in _models(part)]
