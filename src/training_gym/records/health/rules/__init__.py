"""All rules, in the order in which `docs/health.md` lists them."""

from training_gym.records.health.rule import Rule
from training_gym.records.health.rules import (
    advice,
    agreement,
    answers,
    learning,
    machinery,
    watchdog,
)

RULES: tuple[Rule, ...] = (
    *learning.RULES,
    *answers.RULES,
    *agreement.RULES,
    *machinery.RULES,
    *watchdog.RULES,
)
"""Those that warn and alarm."""

ADVICE: tuple[Rule, ...] = advice.RULES
"""Those that only advise; silent while any of the others has an open alert."""
