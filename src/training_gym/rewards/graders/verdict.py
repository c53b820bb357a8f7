"""What a grader found: a score or why there is none, its parts, and attempts to forge it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import JsonValue

from training_gym.spec.episodes import Score
from training_gym.spec.settings import Settings

TamperingKind = Literal[
    "disguised_value",  # an object that says it equals anything
    "early_exit",  # the process was ended in the middle of a call, as if all were done
    "forged_frame",  # lines on the channel that nobody had asked for
    "injected_file",  # a file that changes how Python or a test runner starts
    "leftover_processes",  # something stayed behind to act later
    "link",  # an artifact that is a link or a device
    "patched_builtins",  # builtins or json were replaced
    "patched_runner",  # a test that must fail passed
    "protected_file",  # a file of the tests came along with the submission
    "shadowed_module",  # a file named like a module of the standard library
    "suspicious_code",  # source that reaches for what no solution needs
    "tests_changed",  # the tests were not the same after the run
    "verdict_file",  # a file that a grader might take for a verdict was written
]


class Tampering(Settings):
    """One sign that the submission tried to get a score it did not earn."""

    kind: TamperingKind
    evidence: str
    """What was seen, in one line."""
    observed: bool = True
    """Seen to happen, so the score is zero; False: read in the source, so only reported."""


class Case(Settings):
    """One case or test."""

    name: str
    passed: bool
    message: str = ""


class Verdict(Settings):
    """The judgement of one submission."""

    score: float | None
    """None: the infrastructure failed, nothing can be said."""
    components: dict[str, float] = {}
    cases: tuple[Case, ...] = ()
    tampering: tuple[Tampering, ...] = ()
    tier: str = ""
    """Tier of isolation it ran under, a key of `spec.sandboxes.TIERS`."""
    reason: str = ""
    """Why there is no score."""

    @property
    def as_score(self) -> Score | None:
        """For `reward=`: None where there is no score."""
        if self.score is None:
            return None
        failed = [f"{case.name}: {case.message}" for case in self.cases if not case.passed]
        details: dict[str, JsonValue] = {
            "tier": self.tier,
            "tampering": [found.model_dump(mode="json") for found in self.tampering],
            "failed": list(failed[:5]),
        }
        components = {**self.components, "tampering": float(len(self.tampering))}
        return Score(value=self.score, components=components, details=details)


Partial = Literal["all", "share"]
"""`all`: 1 where every case passed, else 0; `share`: the share that passed."""


def judged(
    cases: Sequence[Case], tampering: Iterable[Tampering], tier: str, partial: Partial
) -> Verdict:
    """The verdict from cases; observed tampering makes it zero."""
    found = tuple(dict.fromkeys(tampering))
    share = sum(case.passed for case in cases) / len(cases) if cases else 0.0
    score = share if partial == "share" else float(share == 1.0)
    if any(sign.observed for sign in found):
        score = 0.0
    components = {"passed": share}
    return Verdict(
        score=score, components=components, cases=tuple(cases), tampering=found, tier=tier
    )


def not_judged(reason: str) -> Verdict:
    """No score, because the infrastructure failed."""
    return Verdict(score=None, reason=reason)
