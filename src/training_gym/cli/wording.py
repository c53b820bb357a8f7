"""Errors in the words of the command line: the option that was typed, not the field it sets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def options_named(options: Mapping[str, str]) -> Iterator[None]:
    """Raise a `SpecError` from inside anew, with options in place of fields.

    Args:
        options: by the field's full name, such as `{"Resources.memory_mb": "--memory"}`.
    """
    from training_gym.spec.errors import SpecError

    try:
        yield
    except SpecError as error:
        message, fix = (_worded(text, options) for text in (error.message, error.fix))
        raise type(error)(message, fix=fix) from error


def _worded(text: str, options: Mapping[str, str]) -> str:
    for field in sorted(options, key=len, reverse=True):  # the longest first: one may begin another
        text = text.replace(field, options[field])
    return text
