"""What one gateway takes on, so that no client can harm the others."""

from __future__ import annotations

from pydantic import Field

from training_gym.spec.settings import Settings


class GatewayLimits(Settings):
    """Bounds of a gateway; all hold for each request unless they say otherwise."""

    max_sampling: int = Field(256, ge=1)
    """Requests of all sessions that sample at once; more wait."""
    max_waiting: int = Field(4096, ge=0)
    """Requests of all sessions that may wait; more get status 429."""
    max_in_session: int = Field(64, ge=1)
    """Requests of one session that sample or wait at once; more get status 429."""
    max_body_bytes: int = Field(16 << 20, ge=1)
    """A larger body gets status 413."""
    body_timeout_s: float = Field(30.0, gt=0)
    """A body that takes longer to arrive gets status 408."""
    send_timeout_s: float = Field(60.0, gt=0)
    """A client that reads nothing for so long is given up."""
    retry_grace_s: float = Field(10.0, ge=0)
    """After a client has gone, sampling goes on so long for it to ask again."""
    patience_s: float = Field(2.0, ge=0)
    """A streamed request gets its status only now if sampling takes longer."""
    ping_every_s: float = Field(10.0, gt=0)
    """How often a waiting stream shows a sign of life."""
    kept_answers: int = Field(64, ge=1)
    """Answers of one session that are remembered for retries."""
