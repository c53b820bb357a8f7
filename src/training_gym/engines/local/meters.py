"""Memory in use and its peak since a phase began, of this process or of its accelerator."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path
from typing import Protocol

import torch

from training_gym.jobs.memory import available_bytes, lines


class Meter(Protocol):
    """Measures the memory that weights and activations lie in, in bytes."""

    def used(self) -> int:
        """What is in use now."""
        ...

    def room(self) -> int:
        """What more can be had now."""
        ...

    def begin(self) -> None:
        """A phase begins: peaks count from here."""
        ...

    def peak(self) -> int:
        """The most that was in use since."""
        ...

    def highest(self) -> int:
        """The most that ever was in use."""
        ...


class ProcessMeter:
    """Implements `Meter` by the resident size of this process.

    Linux resets its mark of the peak on request (`clear_refs`); elsewhere peaks only grow.
    """

    def __init__(self) -> None:
        """Nothing was measured yet."""
        self._highest = 0

    def used(self) -> int:
        """See `Meter`."""
        return _status("VmRSS") or self.peak()

    def room(self) -> int:
        """See `Meter`. The least of what the system and every enclosing cgroup has left."""
        return available_bytes()

    def begin(self) -> None:
        """See `Meter`."""
        self.highest()
        with contextlib.suppress(OSError):  # not Linux, or not allowed
            Path("/proc/self/clear_refs").write_text("5")

    def peak(self) -> int:
        """See `Meter`."""
        found = _status("VmHWM")
        if found is not None:
            return found
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    def highest(self) -> int:
        """See `Meter`."""
        self._highest = max(self._highest, self.peak())
        return self._highest


class DeviceMeter:
    """Implements `Meter` by what torch has allocated on a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        """Measure `device`."""
        self._device = device
        self._highest = 0

    def used(self) -> int:
        """See `Meter`."""
        return torch.cuda.memory_allocated(self._device)

    def room(self) -> int:
        """See `Meter`. What the driver has left, and what torch holds without using it."""
        free, _ = torch.cuda.mem_get_info(self._device)
        return int(free) + torch.cuda.memory_reserved(self._device) - self.used()

    def begin(self) -> None:
        """See `Meter`."""
        self.highest()
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak(self) -> int:
        """See `Meter`."""
        return torch.cuda.max_memory_allocated(self._device)

    def highest(self) -> int:
        """See `Meter`."""
        self._highest = max(self._highest, self.peak())
        return self._highest


def meter_of(device: torch.device) -> Meter:
    """The meter of the memory that a model on `device` lies in."""
    return DeviceMeter(device) if device.type == "cuda" else ProcessMeter()


def _status(name: str) -> int | None:
    for line in lines(Path("/proc/self/status")):
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None
