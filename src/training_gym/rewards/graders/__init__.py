"""Graders that run what a model wrote, in sandboxes, and cannot be talked into a score by it.

Each is a scorer for `reward=`. Expected values and verdicts never enter a sandbox in which the
submission runs; `docs/graders.md` says what that means for each.
"""

from training_gym.rewards.graders.bench import Bench, BenchSettings
from training_gym.rewards.graders.commands import CommandTests
from training_gym.rewards.graders.functions import FunctionCases
from training_gym.rewards.graders.programs import ProgramCases
from training_gym.rewards.graders.submission import Submission, leave, submission_of
from training_gym.rewards.graders.unit_tests import UnitTests
from training_gym.rewards.graders.verdict import Case, Tampering, Verdict

__all__ = [
    "Bench",
    "BenchSettings",
    "Case",
    "CommandTests",
    "FunctionCases",
    "ProgramCases",
    "Submission",
    "Tampering",
    "UnitTests",
    "Verdict",
    "leave",
    "submission_of",
]
