"""The tiers that this machine can be tested on: what CI runs as root also runs as nobody."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

from training_gym.sandboxes.zygote.provider import ZygoteProvider
from training_gym.spec.sandboxes import SandboxProvider

NOBODY = 65534


def _tiers() -> dict[str, Callable[[], SandboxProvider]]:
    if os.geteuid() == 0:
        return {
            "A": ZygoteProvider,
            "B": functools.partial(ZygoteProvider, uid=NOBODY),
        }
    return {"B": ZygoteProvider}


TIERS_HERE = _tiers()
