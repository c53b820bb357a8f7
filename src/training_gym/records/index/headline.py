"""The metrics that are shown first: what the field looks at to see whether a run learns."""

from __future__ import annotations

from collections.abc import Collection, Iterable

HEADLINE: tuple[tuple[str, ...], ...] = (
    ("reward_mean", "loss"),
    ("eval/*",),
    ("entropy",),
    ("kl_to_reference", "kl_to_sampler", "kl"),
    ("mismatch_mean", "mismatch_max"),
    ("response_tokens_mean",),
    ("truncated_share",),
    ("groups_equal_share",),
    ("clipped_fraction",),
    ("grad_norm",),
    ("learning_rate",),
    ("step_seconds",),
)
"""One chart each; of alternatives, the first that the run has."""


def headline(names: Collection[str]) -> tuple[str, ...]:
    """Those of the run's metrics to show first, in order."""
    found = [name for choice in HEADLINE for name in _first(choice, names)]
    return tuple(dict.fromkeys(found))


def _first(choice: Iterable[str], names: Collection[str]) -> list[str]:
    for wanted in choice:
        if wanted.endswith("*"):
            matching = sorted(name for name in names if name.startswith(wanted[:-1]))
            if matching:
                return matching
        elif wanted in names:
            return [wanted]
    return []
