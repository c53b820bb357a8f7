"""Rewards: run in killable processes, composed, and a library of scorers."""

from training_gym.rewards.judgement import Judgement
from training_gym.rewards.runner import RewardRunner

__all__ = ["Judgement", "RewardRunner"]
