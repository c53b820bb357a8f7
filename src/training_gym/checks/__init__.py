"""Preflight: whatever could fail after an hour in a queue is tried in the first ten seconds.

Needs neither torch nor transformers; what only they could tell is left to the job, with a note.
"""

from training_gym.checks.preflight import raise_errors, run_checks
from training_gym.checks.subject import Subject

__all__ = ["Subject", "raise_errors", "run_checks"]
