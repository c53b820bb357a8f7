"""Where every value of a definition came from: default, recipe, user, planner.

What was *set* decides, never what it equals: a field given its default value is the user's.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from training_gym.spec.code import Code
from training_gym.spec.plan import Origin
from training_gym.spec.recipe import RECIPES
from training_gym.spec.run import RunSpec
from training_gym.spec.settings import Settings


def origins_of(run: RunSpec, user_paths: Set[str] = frozenset()) -> dict[str, Origin]:
    """Dotted path of every leaf of `run` to its origin.

    Args:
        run: The definition.
        user_paths: Paths set by hand on top of it, such as by `--set`; they and all beneath them
            are the user's.
    """
    origins: dict[str, Origin] = {}
    for name in type(run).model_fields:
        base = RECIPES.get(run.recipe.name) if name == "recipe" else None
        given = name in run.model_fields_set
        # A recipe is a choice of values; each of them says for itself where it comes from.
        origins.update(_leaves(getattr(run, name), name, "user" if given else "default", base))
    for path in origins:
        if any(path == mine or path.startswith(f"{mine}.") for mine in user_paths):
            origins[path] = "user"
    return origins


def _leaves(
    value: Any, path: str, origin: Origin, base: Settings | None
) -> Iterator[tuple[str, Origin]]:
    """The leaves beneath `path`, whose value has `origin` as a whole.

    `base` is the named recipe's value at the same place; what is set as it sets it is its own.
    """
    if isinstance(value, Settings):
        for name in type(value).model_fields:
            child = getattr(value, name)
            inner = getattr(base, name, None)
            yield from _leaves(
                child,
                f"{path}.{name}",
                _field_origin(value, name, origin, base),
                inner if isinstance(inner, type(child)) and isinstance(inner, Settings) else None,
            )
    elif isinstance(value, tuple) and value and all(isinstance(v, Settings) for v in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}", origin, None)
    else:
        yield path, origin


def _field_origin(value: Settings, name: str, whole: Origin, base: Settings | None) -> Origin:
    if name == "kind":  # never given by hand, but it is what the choice of the class decides
        return whole
    if isinstance(value, Code) and value.kwargs is None and name == "kwargs":
        return "default"
    if name not in value.model_fields_set or (whole == "default" and base is None):
        return "default"
    if base is not None and name in base.model_fields_set:
        same = getattr(value, name) == getattr(base, name)
        return "recipe" if same else "user"
    return "user"
