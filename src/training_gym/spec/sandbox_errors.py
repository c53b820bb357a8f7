"""What can go wrong with a sandbox, and what that means for the episode it happened in.

```
SandboxError (spec.errors)
├── RateLimited        provider   retry later   no grade   no reward
├── QuotaExceeded      provider   retry later   no grade   no reward
├── StartTimeout       provider   retry now     no grade   no reward
├── StartFailed        task       never         no grade   no reward
├── SandboxDied        provider   retry now     no grade   no reward
├── SandboxUnsupported caller     never         no grade   no reward
├── SandboxFileError   policy     never         grade      reward counts
├── ExecTimeout        policy     never         grade      reward counts
├── OutputLimit        policy     never         grade      reward counts
└── OutOfMemory        policy     never         grade      reward counts
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from training_gym.spec.errors import SandboxError
from training_gym.spec.settings import Settings

Failure = Literal["exec_timeout", "output_limit", "out_of_memory"]

Cause = Literal["provider", "task", "policy", "caller"]
Retry = Literal["now", "later", "never"]


class Disposition(Settings):
    """What a failure means for the episode it happened in."""

    cause: Cause
    """The provider, the task's image or spec, what the policy did, or how it was called."""
    retry: Retry
    """`now`: in a fresh sandbox; `later`: after a wait; `never`: it would fail again."""
    grade: bool
    """Whether what the policy did so far should be graded."""
    reward_valid: bool
    """Whether a reward from it says something about the policy. If not, it is missing: not zero."""


_INFRASTRUCTURE = Disposition(cause="provider", retry="now", grade=False, reward_valid=False)
_BUSY = Disposition(cause="provider", retry="later", grade=False, reward_valid=False)
_BUDGET = Disposition(cause="policy", retry="never", grade=True, reward_valid=True)


class RateLimited(SandboxError):
    """The provider creates no faster."""

    disposition: ClassVar[Disposition] = _BUSY

    def __init__(self, message: str, *, fix: str, retry_after_s: float | None = None) -> None:
        """`retry_after_s`: what the provider asked for, if it did."""
        super().__init__(message, fix=fix)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_rate_limited, (self.message, self.fix, self.retry_after_s))


def _rebuild_rate_limited(message: str, fix: str, retry_after_s: float | None) -> RateLimited:
    return RateLimited(message, fix=fix, retry_after_s=retry_after_s)


class QuotaExceeded(SandboxError):
    """The account or machine holds no more of them at once."""

    disposition: ClassVar[Disposition] = _BUSY


class StartTimeout(SandboxError):
    """The sandbox was not ready in time."""

    disposition: ClassVar[Disposition] = _INFRASTRUCTURE


class StartFailed(SandboxError):
    """The sandbox cannot start: a fault of its image or spec, not of the moment."""

    disposition: ClassVar[Disposition] = Disposition(
        cause="task", retry="never", grade=False, reward_valid=False
    )


class SandboxDied(SandboxError):
    """The sandbox vanished while it was in use."""

    disposition: ClassVar[Disposition] = _INFRASTRUCTURE


class SandboxUnsupported(SandboxError):
    """The provider does not offer what was asked of it."""

    disposition: ClassVar[Disposition] = Disposition(
        cause="caller", retry="never", grade=False, reward_valid=False
    )


class SandboxFileError(SandboxError):
    """A file is absent, not a regular one, too large, or cannot be written."""

    disposition: ClassVar[Disposition] = _BUDGET


class ExecTimeout(SandboxError):
    """A command used up its time."""

    disposition: ClassVar[Disposition] = _BUDGET


class OutputLimit(SandboxError):
    """A command wrote too much."""

    disposition: ClassVar[Disposition] = _BUDGET


class OutOfMemory(SandboxError):
    """A command, or the whole sandbox by its doing, used too much memory."""

    disposition: ClassVar[Disposition] = _BUDGET


FAILURES: Mapping[Failure, type[SandboxError]] = {
    "exec_timeout": ExecTimeout,
    "output_limit": OutputLimit,
    "out_of_memory": OutOfMemory,
}
REMEDIES: Mapping[Failure, str] = {
    "exec_timeout": "raise timeout_s if the command deserves more",
    "output_limit": "raise kill_output_bytes, or let the command write to a file",
    "out_of_memory": "raise resources.memory_mb if the command deserves more",
}


def disposition(error: BaseException) -> Disposition:
    """What an error means for its episode; one that is not ours counts as infrastructure."""
    found = getattr(error, "disposition", None)
    return found if isinstance(found, Disposition) else _INFRASTRUCTURE
