"""What the zygote's tiers keep here, for `doctor`."""

from __future__ import annotations

from collections.abc import Set

from training_gym.spec.sandboxes import Guarantee, TierReport

_ALWAYS: tuple[Guarantee, ...] = (
    "files",
    "processes",
    "network",
    "syscalls",
    "disk",
    "process_count",
    "leftovers",
    "owner_death",
)
_SHARED_KERNEL = "it shares the host's kernel: not for code written to attack it"


def describe(tier: str, controlled: Set[str]) -> TierReport:
    """A tier that works, with these control-group controllers."""
    guarantees = list(_ALWAYS)
    limits = [_SHARED_KERNEL]
    if "memory" in controlled:
        guarantees.append("memory")
    else:
        limits.append(
            "memory is watched from outside every 30 ms: about 100 MB beyond the limit are possible"
        )
    if "cpu" in controlled:
        guarantees.append("cpu")
    else:
        limits.append("the CPU limit is not enforced: no control group can be made")
    if tier == "B2":
        limits.append("/proc is empty, and there are no background commands")
    return TierReport(
        tier=tier, provider="local", works=True, guarantees=tuple(guarantees), limits=tuple(limits)
    )
