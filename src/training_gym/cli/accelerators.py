"""NVIDIA accelerators, as their driver's own tool tells of them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

PATIENCE_S = 10.0


@dataclass(frozen=True)
class Accelerator:
    """One device."""

    name: str
    memory_gib: float
    driver: str


def found() -> list[Accelerator]:
    """What `nvidia-smi` lists; nothing where there is no such tool or no device."""
    try:
        answer = subprocess.run(
            [
                "nvidia-smi",
                "--query-gpu=name,memory.total,driver_version",
                "--format=csv,noheader,nounits",
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [_parsed(line) for line in answer.stdout.splitlines() if line.count(",") >= 2]


def _parsed(line: str) -> Accelerator:
    name, memory_mib, driver = (part.strip() for part in line.rsplit(",", 2))
    size = float(memory_mib) / 1024 if memory_mib.replace(".", "", 1).isdigit() else 0.0
    return Accelerator(name, size, driver)
