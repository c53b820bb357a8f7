"""Demo runs: realistic runs, healthy and sick, made without a model. For screenshots, docs, tests.

They are real run directories, written in the very formats that engines write; only what they
record is invented, from a seed.
"""

from training_gym.records.demo.generate import follow_demo_run, write_demo_run
from training_gym.records.demo.shape import KINDS, DemoShape, Kind

__all__ = ["KINDS", "DemoShape", "Kind", "follow_demo_run", "write_demo_run"]
