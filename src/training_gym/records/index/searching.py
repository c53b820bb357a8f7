"""Patterns of whoever asks, tried in a process of their own.

Some patterns take longer than anybody lives on some lines, and while Python tries one it can
neither be stopped nor do anything else. A process can be ended.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from training_gym.spec.errors import RecordsError

LONGEST_S = 2.0
"""How long some lines may be tried."""
_TRY = """
import json, re, sys
pattern = re.compile(json.loads(sys.stdin.readline()), re.IGNORECASE)
for line in sys.stdin:
    found = [pattern.search(text) is not None for text in json.loads(line)]
    print(json.dumps(found), flush=True)
"""
Search = Callable[[Sequence[str]], Sequence[bool]]
"""Which of some texts have the pattern in them."""


@contextlib.contextmanager
def searching(pattern: str) -> Iterator[Search]:
    """A search for a regular expression, case counting for nothing; everything has an empty one.

    Raises `RecordsError` for what is none; the search itself does where it takes too long.
    """
    if pattern == re.escape(pattern):  # letters and digits: nothing to wait for
        yield lambda texts: [pattern.lower() in text.lower() for text in texts]
        return
    _require_pattern(pattern)
    command = [sys.executable, "-I", "-S", "-c", _TRY]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(pattern).encode() + b"\n")
            yield lambda texts: _answer(process, pattern, texts)
        finally:
            process.kill()


def _answer(process: subprocess.Popen[bytes], pattern: str, texts: Sequence[str]) -> Sequence[bool]:
    assert process.stdin is not None
    assert process.stdout is not None
    end = threading.Timer(LONGEST_S, process.kill)
    end.start()
    try:
        process.stdin.write(json.dumps(texts).encode() + b"\n")
        process.stdin.flush()
        said = process.stdout.readline()
    except BrokenPipeError:
        said = b""
    finally:
        end.cancel()
    if not said:
        raise RecordsError(
            f"{pattern!r:.60} takes too long on lines like these",
            fix="write it without a repetition inside another one, or look for plain text",
        )
    found: list[bool] = json.loads(said)
    return found


def _require_pattern(pattern: str) -> None:
    try:
        re.compile(pattern, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        raise RecordsError(
            f"{pattern!r:.60} is no regular expression: {error}",
            fix="escape what is meant literally with a backslash",
        ) from None
