"""Models as judges: a question or a rubric, put to any policy or endpoint, as a reward.

Each is a scorer for `reward=`. What cannot be judged, since nobody answered, the budget is used up
or the judge fell for a canary, has no score: it is missing, never zero.
"""

from training_gym.rewards.judges.calibration import Calibration, Labelled, calibrate
from training_gym.rewards.judges.judge import Criterion, LlmJudge, Rubric

__all__ = ["Calibration", "Criterion", "Labelled", "LlmJudge", "Rubric", "calibrate"]
