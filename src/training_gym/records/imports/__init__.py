"""Runs of other trackers as runs of ours, to compare with: their numbers, nothing else."""

from training_gym.records.imports.importing import IMPORTS, import_run

__all__ = ["IMPORTS", "import_run"]
