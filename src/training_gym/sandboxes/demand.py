"""From what a run asks of its sandboxes to how many to hold ready, with every step of the way."""

from __future__ import annotations

from pydantic import Field

from training_gym.sandboxes import sizing
from training_gym.spec.errors import SpecError
from training_gym.spec.settings import Settings

MOST_OUTSTANDING = 1e8
"""Mean starts under way up to which the sums of `sizing` take a moment only."""


class Demand(Settings):
    """What the episodes ask and what the provider gives; times in seconds, shares from 0 to 1."""

    episodes: int = Field(gt=0)
    """Episodes in flight, each holding one sandbox."""
    hold_s: float = Field(gt=0)
    """Mean seconds an episode holds its sandbox."""
    start_s: float = Field(gt=0)
    """Mean seconds a sandbox takes to start."""
    failure: float = Field(0.0, ge=0, lt=1)
    """Share of starts that fail."""
    failure_s: float | None = Field(None, gt=0)
    """Mean seconds until a failed start is noticed; None: as long as a start."""
    death: float = Field(0.0, ge=0, lt=1)
    """Share of episodes whose sandbox dies and is replaced."""
    refill_s: float = Field(0.0, ge=0)
    """Period between refills; 0: every acquire orders at once."""
    create_limit_per_s: float | None = Field(None, gt=0)
    """Creations a second that the provider allows; None: no limit."""
    blocking: float = Field(0.01, gt=0, lt=1)
    """Share of acquires that may wait."""


class Size(Settings):
    """The answer, with what led to it."""

    acquires_per_s: float
    """Sandboxes acquired a second."""
    lead_s: float
    """Seconds from an order to a ready sandbox."""
    outstanding: float
    """Mean starts under way."""
    creates_needed_per_s: float
    """Creations a second that must be exceeded."""
    sustainable: bool
    """Whether the create limit allows it. If not, no buffer suffices."""
    spares: int | None
    """Sandboxes to hold ready or on order beyond those in use; None where none suffices."""
    live: int | None
    """Sandboxes in all: one an episode, and the spares."""
    idle: float | None
    """Mean spares that stand ready."""
    predicted_blocking: float | None
    """Share of acquires that wait with that many spares."""


def size(demand: Demand) -> Size:
    """Carry out the formulas of `sizing`, in their order.

    Raises:
        SpecError: More starts would be under way than any provider holds.
    """
    rate = sizing.acquires_per_s(demand.episodes, demand.hold_s)
    lead = sizing.lead_time_s(
        demand.start_s,
        failure=demand.failure,
        failure_s=demand.failure_s,
        refill_s=demand.refill_s,
    )
    outstanding = sizing.outstanding_starts(rate, lead, death=demand.death)
    if not outstanding <= MOST_OUTSTANDING:  # neither more nor nan
        raise SpecError(
            f"{demand.episodes} episodes that hold a sandbox {demand.hold_s:g} s have "
            f"{outstanding:.3g} starts of {demand.start_s:g} s under way at once: more than "
            f"{MOST_OUTSTANDING:g}",
            fix="give fewer episodes, a longer hold time or a shorter start time",
        )
    needed = sizing.creates_needed_per_s(rate, failure=demand.failure, death=demand.death)
    limit = demand.create_limit_per_s
    sustainable = limit is None or limit > needed
    spares = sizing.spares(outstanding, demand.blocking) if sustainable else None
    return Size(
        acquires_per_s=rate,
        lead_s=lead,
        outstanding=outstanding,
        creates_needed_per_s=needed,
        sustainable=sustainable,
        spares=spares,
        live=None if spares is None else demand.episodes + spares,
        idle=None if spares is None else sizing.idle_spares(outstanding, spares),
        predicted_blocking=None if spares is None else sizing.poisson_tail(spares, outstanding),
    )


def explanation(demand: Demand, answer: Size) -> list[str]:
    """The way to the answer in words and numbers, one thought a line."""
    noticed = demand.start_s if demand.failure_s is None else demand.failure_s
    lines = [
        f"{demand.episodes} episodes that hold a sandbox {demand.hold_s:g} s acquire "
        f"{answer.acquires_per_s:.4g} a second (episodes / hold time)",
        f"an order takes {answer.lead_s:.4g} s: start {demand.start_s:g} s + failures "
        f"{demand.failure:g}/(1-{demand.failure:g})·{noticed:g} s + refill {demand.refill_s:g} s",
        f"so {answer.outstanding:.4g} starts are under way on average: "
        f"{answer.acquires_per_s:.4g}/s · (1 + {demand.death:g} deaths) · {answer.lead_s:.4g} s; "
        "their number is Poisson, whatever the start times look like",
        f"creations needed: more than {answer.creates_needed_per_s:.4g} a second, "
        + _limit(demand.create_limit_per_s),
    ]
    if answer.spares is None:
        return [
            *lines,
            f"NO BUFFER SUFFICES: {demand.create_limit_per_s:g} creations a second cannot keep up "
            f"with {answer.creates_needed_per_s:.4g}; ask for a higher limit, lower the episodes "
            f"to under {_episodes_that_fit(demand, answer):.0f}, or reuse sandboxes for longer",
        ]
    return [
        *lines,
        f"{answer.spares} spares: the fewest for which all are on order with probability "
        f"{answer.predicted_blocking:.2g} <= {demand.blocking:g}",
        f"live: {answer.live} sandboxes, {demand.episodes} in use and {answer.spares} ready or "
        f"starting, of which {answer.idle:.3g} stand idle on average",
    ]


def _limit(limit: float | None) -> str:
    return "and no limit was given" if limit is None else f"of {limit:g} allowed"


def _episodes_that_fit(demand: Demand, answer: Size) -> float:
    limit = demand.create_limit_per_s or 0.0
    return demand.episodes * limit / answer.creates_needed_per_s
