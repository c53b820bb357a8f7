"""What a pool may do, as one value."""

from __future__ import annotations

from pydantic import Field

from training_gym.spec.settings import Settings


class PoolPolicy(Settings):
    """How a warm pool keeps its stock. The defaults suit a machine's own sandboxes."""

    blocking: float = Field(0.01, gt=0, lt=1)
    """Share of acquires that may wait."""
    min_spares: int = Field(1, ge=0)
    """Spares of a kind in use, however slow its acquires."""
    max_spares: int = Field(1024, ge=0)
    """Never more spares of one kind, ready and starting together; 0: all are made on demand."""
    max_live: int | None = Field(None, gt=0)
    """Never more sandboxes in all; None: what the provider says it holds."""
    creates_per_s: float | None = Field(None, gt=0)
    """Creations a second over all processes of this home; None: what the provider says. The pool
    stays 2 % below, so that jitter on the way does not make it one too many."""
    create_burst: int = Field(1, gt=0)
    """Creations that may come at once after a pause."""
    max_starting: int | None = Field(None, gt=0)
    """Sandboxes starting at once over all processes of this home; None: no limit."""
    start_timeout_s: float = Field(60.0, gt=0)
    """Until a start that is not done has failed."""
    start_attempts: int = Field(4, gt=0)
    """Tries for one order before its waiter is told."""
    backoff_s: float = Field(0.2, gt=0)
    """Pause after the first refusal to be retried later; doubled each time."""
    backoff_limit_s: float = Field(15.0, gt=0)
    """Longest such pause."""
    hedge: bool = True
    """Start a second sandbox when the first takes longer than 95 % of earlier ones."""
    rate_window_s: float = Field(30.0, gt=0)
    """Time constant of the counter of acquires."""
    stale_after_s: float = Field(60.0, gt=0)
    """A spare not heard of for so long is asked whether it lives before it is handed out."""
    probe_timeout_s: float = Field(5.0, gt=0)
    """Until a spare that does not answer counts as dead."""
    spare_ttl_s: float = Field(900.0, gt=0)
    """Age at which a spare is destroyed and replaced."""
    forget_after_s: float = Field(300.0, gt=0)
    """Time without an acquire after which a kind keeps no spares."""
    check_every_s: float = Field(1.0, gt=0)
    """Period of the upkeep: ages, probes, surplus."""
    reap_every_s: float = Field(60.0, gt=0)
    """Period in which what dead owners left is looked for."""
    breaker_window: int = Field(20, gt=1)
    """Latest starts that the circuit breaker looks at."""
    breaker_failures: float = Field(0.6, gt=0, le=1)
    """Share of them that must have failed for it to open."""
    breaker_pause_s: float = Field(5.0, gt=0)
    """First pause of an open breaker; doubled up to a minute while trials fail."""
