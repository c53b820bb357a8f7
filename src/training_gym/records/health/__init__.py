"""Health: what is wrong with a run, since when, shown by which episodes, and what to do.

`assess(run_directory)` is what views build on.
"""

from training_gym.records.health.acknowledgement import acknowledge
from training_gym.records.health.alerts import Alert, Assessment, Verdict
from training_gym.records.health.assessment import assess

__all__ = ["Alert", "Assessment", "Verdict", "acknowledge", "assess"]
