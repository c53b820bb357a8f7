"""The tiers that this machine can be tested on: what CI runs as root also runs as nobody."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable

from training_gym.sandboxes.bubblewrap import BubblewrapProvider
from training_gym.sandboxes.confined import Landlock, LandlockProvider
from training_gym.sandboxes.zygote.provider import ZygoteProvider
from training_gym.spec.sandboxes import SandboxError, SandboxProvider
from training_gym.testing.sandbox_attacks import ATTACKS, Attack

NOBODY = 65534
Make = Callable[[], SandboxProvider]


def _zygotes() -> dict[str, Make]:
    if sys.platform != "linux":
        return {}
    if os.geteuid() != 0:
        return {"B": ZygoteProvider}
    return {"A": ZygoteProvider, "B": functools.partial(ZygoteProvider, uid=NOBODY)}


def _others() -> dict[str, Make]:
    found: dict[str, Make] = {}
    try:
        Landlock().check()
        found["C"] = LandlockProvider
    except (SandboxError, OSError):
        pass
    if shutil.which("bwrap"):
        found["bubblewrap"] = BubblewrapProvider
    return found


ZYGOTES = _zygotes()
TIERS = {**ZYGOTES, **_others()}
UNCLAIMED = {
    "C": {"disk", "cpu"} | (set() if os.geteuid() == 0 else {"process_count"}),
    "bubblewrap": {"disk", "cpu"},
}
"""What the reports of these tiers say they do not keep; `memory` is attacked all the same."""


def claimed() -> list[tuple[str, Attack]]:
    """Every attack with every tier that claims to withstand it."""
    return [
        (tier, attack)
        for tier in TIERS
        for attack in ATTACKS
        if attack.guarantee not in UNCLAIMED.get(tier, ())
    ]
