"""What `training-gym sandbox doctor` says of a remote provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_gym.spec.sandboxes import SandboxError, TierReport

if TYPE_CHECKING:
    from training_gym.spec.sandboxes import SandboxProvider

_LIMITS = (
    "a process that leaves its process group outlives its command: grade in a fresh sandbox",
    "running out of memory shows as signal 9, not as out_of_memory",
)


async def remote_reports(provider: SandboxProvider, limits: tuple[str, ...]) -> list[TierReport]:
    """Ask for a list: it needs the client, credentials and the network, and costs nothing."""
    try:
        await provider.list({"training-gym-owner": "nobody"})
    except SandboxError as error:
        return [
            TierReport(
                tier="remote",
                provider=provider.name,
                works=False,
                reason=error.message,
                fix=error.fix,
            )
        ]
    return [
        TierReport(
            tier="remote",
            provider=provider.name,
            works=True,
            guarantees=("files", "processes", "network", "kernel", "memory"),
            limits=(*limits, *_LIMITS),
        )
    ]
