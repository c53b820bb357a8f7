"""Health: what is wrong with a run, since when, shown by which episodes, and what to do.

`assess(run_directory)` is what views build on; `replay` gives the alerts from the records alone.
"""

from training_gym.records.health.acknowledgement import acknowledge
from training_gym.records.health.alerts import Alert, Assessment, Verdict
from training_gym.records.health.assessment import Course, assess, is_paused
from training_gym.records.health.recorded import record_alerts
from training_gym.records.health.replay import replay

__all__ = [
    "Alert",
    "Assessment",
    "Course",
    "Verdict",
    "acknowledge",
    "assess",
    "is_paused",
    "record_alerts",
    "replay",
]
