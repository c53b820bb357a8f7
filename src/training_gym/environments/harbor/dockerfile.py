"""Dockerfiles, read: the instructions that can be carried out in any sandbox.

One stage; FROM, RUN, COPY and ADD of local files, WORKDIR, ENV, ARG, USER, SHELL; LABEL, EXPOSE,
CMD, ENTRYPOINT and their like say nothing about the files and are skipped. All else is refused by
line and name.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from training_gym.spec.errors import EnvironmentFailure

CARRIED_OUT = frozenset({"FROM", "RUN", "COPY", "ADD", "WORKDIR", "ENV", "ARG", "USER", "SHELL"})
WITHOUT_EFFECT = frozenset(
    {"LABEL", "EXPOSE", "CMD", "ENTRYPOINT", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "VOLUME"}
)
"""On the files and on commands run with `exec`, as Harbor runs them."""

_VARIABLE = re.compile(r"\\(.)|\$(\w+)|\$\{(\w+)(?::([-+])([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction."""

    line: int
    name: str
    text: str
    """What follows the name, lines joined."""
    flags: Mapping[str, str]

    @property
    def words(self) -> list[str]:
        """A JSON list's entries, else the shell's words."""
        if self.text.startswith("["):
            try:
                listed = json.loads(self.text)
                if isinstance(listed, list) and all(isinstance(word, str) for word in listed):
                    return listed
            except ValueError:
                pass
        return shlex.split(self.text)


def read_dockerfile(text: str) -> list[Instruction]:
    """Its instructions; raises `EnvironmentFailure` for one that cannot be carried out."""
    found: list[Instruction] = []
    for number, line in _logical_lines(text):
        name, _, rest = line.partition(" ")
        rest = rest.strip()
        flags: dict[str, str] = {}
        if name.upper() in ("RUN", "COPY", "ADD", "FROM"):
            while match := re.match(r"--([\w-]+)(?:=(\S+))?\s+", rest):
                flags[match[1]] = match[2] or ""
                rest = rest[match.end() :]
        instruction = Instruction(number, name.upper(), rest, flags)
        _check(instruction, first=not any(item.name == "FROM" for item in found))
        found.append(instruction)
    if not any(item.name == "FROM" for item in found):
        raise EnvironmentFailure("the Dockerfile has no FROM", fix="begin it with FROM")
    return found


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}` filled in."""

    def fill(match: re.Match[str]) -> str:
        escaped, plain, braced, sign, other = match.groups()
        if escaped is not None:
            return f"\\{escaped}" if escaped != "$" else "$"
        value = variables.get(plain or braced, "")
        if sign == "-":
            return value or other
        if sign == "+":
            return other if value else ""
        return value

    return _VARIABLE.sub(fill, text)


def assignments(instruction: Instruction) -> dict[str, str]:
    """The variables that ENV sets, in either spelling."""
    first = instruction.text.split(maxsplit=1)
    if first and "=" not in first[0]:
        return {first[0]: first[1] if len(first) > 1 else ""}
    return dict(word.partition("=")[::2] for word in shlex.split(instruction.text))


def _check(instruction: Instruction, *, first: bool) -> None:
    name, text = instruction.name, instruction.text
    reason = None
    if name not in CARRIED_OUT | WITHOUT_EFFECT:
        reason = f"{name} is not known here"
    elif first and name not in ("FROM", "ARG"):
        reason = f"{name} stands before FROM"
    elif name == "FROM" and not first:
        reason = "a second FROM makes it a build of several stages"
    elif "from" in instruction.flags and name == "COPY":
        reason = "COPY --from takes files of another stage or image"
    elif instruction.flags and name == "RUN":
        reason = f"RUN --{next(iter(instruction.flags))} needs a full builder"
    elif name == "ADD" and re.search(r"https?://|git@|\.git\b", text):
        reason = "ADD downloads"
    elif "<<" in text and re.search(r"<<-?[\"']?\w+", text) and name in ("RUN", "COPY", "ADD"):
        reason = "a here-document needs a full builder"
    elif not text and name in CARRIED_OUT:
        reason = f"{name} says nothing"
    if reason is not None:
        raise EnvironmentFailure(
            f"Dockerfile, line {instruction.line}: {reason}",
            fix="use a provider that builds Dockerfiles (docker, podman), or docker_image",
        )


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines with continuations joined, without comments."""
    found: list[tuple[int, str]] = []
    kept = ""
    begin = 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if line.startswith("#") or (not line and not kept):
            continue
        begin = begin if kept else number
        if line.endswith("\\"):
            kept += line[:-1] + " "
            continue
        found.append((begin, (kept + line).strip()))
        kept = ""
    if kept.strip():
        found.append((begin, kept.strip()))
    return found
