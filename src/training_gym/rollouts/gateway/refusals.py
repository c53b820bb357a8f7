"""Why a request is not answered: a status, a code and two sentences."""

from __future__ import annotations

from training_gym.spec.errors import GymError


class Refused(GymError):
    """A request that is not answered; what the client sees of it."""

    def __init__(
        self,
        message: str,
        *,
        fix: str,
        status: int = 400,
        code: str = "invalid_request",
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        """`param` is the parameter at fault; `retry_after_s` when to come again."""
        super().__init__(message, fix=fix)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s


def unauthorized() -> Refused:
    """Whoever asks has no session's key."""
    return Refused(
        "no open session has this key",
        fix="use the base URL and key that were given to this episode",
        status=401,
        code="invalid_api_key",
    )


def over(reason: str) -> Refused:
    """The episode has ended; clients do not try again on this status."""
    return Refused(
        f"the episode is over: {reason}", fix="stop here", status=403, code="episode_over"
    )
