"""Which optional packages are installed, from their metadata: nothing is imported."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from urllib.parse import unquote, urlparse

PACKAGE = "training-gym"
HIDDEN = frozenset({"all", "dev"})
"""Extras that only name others, or that only our own developers need."""

_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*);.*extra == ['\"](\w+)['\"]")
_BOUND = re.compile(r"(>=|<)\s*([\d.]+)")


def missing() -> dict[str, list[str]]:
    """For each extra, the requirements that are not met, such as `torch>=2.11`."""
    found: dict[str, list[str]] = {}
    for line in importlib.metadata.requires(PACKAGE) or ():
        parts = _REQUIREMENT.match(line)
        if parts is None or parts.group(3) in HIDDEN:
            continue
        name, bounds, extra = parts.groups()
        lacking = found.setdefault(extra, [])
        if not _met(version_of(name), bounds):
            lacking.append(f"{name}{bounds.strip()}")
    return found


def version_of(package: str) -> str | None:
    """The installed version, local part included; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def command(extra: str) -> str:
    """The command that installs an extra into this very Python."""
    return f"{sys.executable} -m pip install {_target(extra)}"


def _target(extra: str) -> str:
    origin = importlib.metadata.distribution(PACKAGE).read_text("direct_url.json")
    where = json.loads(origin) if origin else {}
    if where.get("dir_info", {}).get("editable"):
        return f"-e '{unquote(urlparse(where['url']).path)}[{extra}]'"
    return f"'{PACKAGE}[{extra}]'"


def _met(version: str | None, bounds: str) -> bool:
    if version is None:
        return False
    have = _numbers(version)
    for relation, limit in _BOUND.findall(bounds):
        if (have >= _numbers(limit)) != (relation == ">="):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """`2.11.0+cpu` as (2, 11): trailing zeros do not count, nor does what follows the numbers."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in leading.group().split(".")] if leading else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
