"""What a machine offers a run, found without importing anything heavy."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from training_gym.cli import extras
from training_gym.platforms.local.machine import probe_machine
from training_gym.spec.home import home
from training_gym.spec.plan import Machine

State = Literal["good", "missing", "broken"]
"""`missing` keeps some things from working, `broken` everything."""

LITTLE_DISK_GIB = 5.0
"""A model, its checkpoints and its cache take about so much."""
LITTLE_MEMORY_GIB = 4.0
"""What full fine-tuning of the quickstart's model takes, about."""
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    code: str
    """Stable, such as `extra.local`."""
    name: str
    value: str
    state: State = "good"
    fix: str = ""

    def fields(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def diagnose() -> list[Finding]:
    """Everything `doctor` looks at, in the order in which it tells of it."""
    machine = probe_machine()
    return [
        _python(),
        Finding("cpu", "processor", f"{machine.cpu_cores} cores, {platform.machine()}"),
        _memory(machine),
        _accelerator(machine),
        _torch(machine),
        *(_extra(name, missing) for name, missing in extras.missing().items()),
        _home(),
        _disk(),
        _hub(),
    ]


def _python() -> Finding:
    version = f"{platform.python_version()} ({sys.executable})"
    return Finding("python", "Python", version)


def _memory(machine: Machine) -> Finding:
    gib = machine.memory_gib
    if gib < LITTLE_MEMORY_GIB:
        fix = "train with an adapter (recipe.adapter) or a smaller model"
        return Finding("memory", "memory", f"{gib:.1f} GiB available", "missing", fix)
    return Finding("memory", "memory", f"{gib:.1f} GiB available")


def _accelerator(machine: Machine) -> Finding:
    if machine.accelerator is None:
        return Finding("accelerator", "accelerator", "none: training runs on the processor")
    each = f"{machine.accelerator} ({machine.accelerator_memory_gib:.0f} GiB)"
    return Finding("accelerator", "accelerator", f"{machine.accelerators} × {each}")


def _torch(machine: Machine) -> Finding:
    version = extras.version_of("torch")
    if version is None:
        return Finding("torch", "torch", "not installed", "missing", extras.command("local"))
    if machine.accelerator is not None and version.endswith("+cpu"):
        fix = "replace it by a build for your accelerator, as torch's own installation guide says"
        value = f"{version}: cannot use {machine.accelerator}"
        return Finding("torch", "torch", value, "missing", fix)
    return Finding("torch", "torch", version)


def _extra(name: str, missing: list[str]) -> Finding:
    if not missing:
        return Finding(f"extra.{name}", f"extra {name}", "complete")
    return Finding(
        f"extra.{name}",
        f"extra {name}",
        "lacks " + ", ".join(missing),
        "missing",
        extras.command(name),
    )


def _home() -> Finding:
    place = home()
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as probe:  # a look makes no home
            probe.write(b"x")
    except OSError as error:
        fix = "make it writable, or set TRAINING_GYM_HOME to a folder that is"
        return Finding("home", "home", f"{place}: {error.strerror}", "broken", fix)
    return Finding("home", "home", str(place))


def _disk() -> Finding:
    place = home()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 2**30
    if free < LITTLE_DISK_GIB:
        fix = "free some space, or set TRAINING_GYM_HOME to a folder on a larger disk"
        return Finding("disk", "disk", f"{free:.1f} GiB free", "missing", fix)
    return Finding("disk", "disk", f"{free:.0f} GiB free")


def _hub() -> Finding:
    offline = [name for name in _OFFLINE if os.environ.get(name, "").lower() in _TRUE]
    cache = os.environ.get("HF_HOME")
    where = f", cache {Path(cache).expanduser()}" if cache else ""
    if offline:
        return Finding(
            "hub", "Hugging Face Hub", f"not asked: {offline[0]} is set{where}", "missing",
            f"unset {offline[0]} to fetch models and data sets",
        )  # fmt: skip
    return Finding("hub", "Hugging Face Hub", f"asked when something is needed{where}")
