"""Ignore files: the rules of .gitignore, for .gitignore and .harborignore.

A pattern with a slash before its end is anchored at the file's folder, `*` and `?` stay within one
name, `**` does not, a closing slash means folders only, `!` takes back; the last match decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

IGNORE_FILE = ".harborignore"

_SCOPE = re.compile(r"(steps/[^/]+/)?(tests|solution)(/.*)?")
"""Where .harborignore files count: below tests and solution."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    takes_back: bool


class IgnoreRules:
    """The rules of one ignore file."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Read its lines; comments and empty ones are skipped."""
        self._rules = [rule for line in lines if (rule := _rule(line)) is not None]

    def verdict(self, path: str, *, is_folder: bool = False) -> bool | None:
        """Whether the path, relative to the rules, is left out; None: no rule matches."""
        subject = f"{path}/" if is_folder else path
        for rule in reversed(self._rules):
            if rule.pattern.match(subject):
                return not rule.takes_back
        return None


class TaskIgnore:
    """The .harborignore files of a task: inherited downwards, a folder left out stays out."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the task's, resolved."""
        self._folder = folder
        self._known: dict[Path, IgnoreRules] = {}

    def leaves_out(self, path: Path) -> bool:
        """Whether a file or folder of the task, or what it links to there, is left out."""
        if not path.is_relative_to(self._folder):
            return False
        if self._matches(path):
            return True
        target = path.resolve()
        return target != path and target.is_relative_to(self._folder) and self._matches(target)

    def _matches(self, path: Path) -> bool:
        parts = path.relative_to(self._folder).parts
        if parts and parts[-1] == IGNORE_FILE:
            return True
        if not _SCOPE.fullmatch("/".join(parts)):
            return False
        here, rules = self._folder, []
        for part in parts:
            if _SCOPE.fullmatch(here.relative_to(self._folder).as_posix()):
                rules.append((here, self._rules(here)))
            here = here / part
            left_out = False
            for owner, found in rules:
                relative = here.relative_to(owner).as_posix()
                verdict = found.verdict(relative, is_folder=here != path or path.is_dir())
                left_out = left_out if verdict is None else verdict
            if left_out:
                return True
        return False

    def _rules(self, folder: Path) -> IgnoreRules:
        if folder not in self._known:
            file = folder / IGNORE_FILE
            if file.is_symlink() and not file.resolve().is_relative_to(self._folder):
                raise ValueError(f"{IGNORE_FILE} links out of the task")
            if (file.exists() or file.is_symlink()) and not file.is_file():
                raise ValueError(f"{IGNORE_FILE} is no regular file")
            self._known[folder] = IgnoreRules(
                file.read_text().splitlines() if file.is_file() else ()
            )
        return self._known[folder]


def _rule(line: str) -> _Rule | None:
    text = line.rstrip("\n")
    text = text.lstrip() if not text.strip() else re.sub(r"(?<!\\) +$", "", text)
    if not text or text.startswith("#"):
        return None
    takes_back = text.startswith("!")
    text = text.removeprefix("!")
    only_folders = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    anchored = "/" in text
    body = _body(text.removeprefix("/"))
    before = "" if anchored else "(?:.*/)?"
    after = "/.*" if only_folders else "(?:/.*)?"
    return _Rule(re.compile(f"^{before}{body}{after}$", re.DOTALL), takes_back)


def _body(text: str) -> str:
    parts = []
    segments = PurePosixPath(text).parts
    for index, segment in enumerate(segments):
        last = index == len(segments) - 1
        if segment == "**":
            parts.append(".*" if last else "(?:.*/)?")
        else:
            parts.append(_segment(segment) + ("" if last else "/"))
    return "".join(parts)


def _segment(segment: str) -> str:
    out, index = [], 0
    while index < len(segment):
        char = segment[index]
        index += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "\\" and index < len(segment):
            out.append(re.escape(segment[index]))
            index += 1
        elif char == "[" and (end := segment.find("]", index + 1)) > 0:
            inner = segment[index:end].replace("\\", "\\\\")
            out.append(f"[{'^' + inner[1:] if inner[:1] in '!^' else inner}]")
            index = end + 1
        else:
            out.append(re.escape(char))
    return "".join(out)
