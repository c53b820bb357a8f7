"""Scorers that people actually use: values that are called with an episode.

They hold settings only, so they travel; what they need beyond the core is named when it lacks.
"""

from training_gym.rewards.library.choice import ChoiceLetter
from training_gym.rewards.library.length import LengthShaping
from training_gym.rewards.library.mathematics import BoxedMath
from training_gym.rewards.library.numeric import NumericMatch
from training_gym.rewards.library.pronunciation import syllables
from training_gym.rewards.library.reasoning import ReasoningGymScore
from training_gym.rewards.library.structure import JsonSchema
from training_gym.rewards.library.textual import ExactMatch, RegexMatch
from training_gym.rewards.library.verse import (
    SyllablePattern,
    distinct_words,
    fresh_words,
    lines,
    mentions,
    syllable_closeness,
    words,
)

__all__ = [
    "BoxedMath",
    "ChoiceLetter",
    "ExactMatch",
    "JsonSchema",
    "LengthShaping",
    "NumericMatch",
    "ReasoningGymScore",
    "RegexMatch",
    "SyllablePattern",
    "distinct_words",
    "fresh_words",
    "lines",
    "mentions",
    "syllable_closeness",
    "syllables",
    "words",
]
