"""Text that a model or a job wrote never controls the terminal it is shown on."""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f"  # control characters but tab and newline: escape, bell, carriage return
    "\x7f-\x9f"  # delete, and the one-character forms of the escape sequences
    "\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"  # unseen, or turning the line around
    "\ud800-\udfff"  # half a character, which no terminal can encode
    "\U000e0000-\U000e007f"  # unseen tags
    "]"
)


def visible(text: str) -> str:
    r"""The text with every character that could act on a terminal written as `\x1b` or `\u202e`."""
    return _UNSAFE.sub(_name, text)


def one_line(text: str, width: int | None = None) -> str:
    """`visible` on a single line, cut to `width` characters where one is given."""
    line = " ".join(visible(text).split())
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def _name(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
