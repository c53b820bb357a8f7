"""Running Harbor tasks: their environment built, their solution run, their verifier graded."""

from training_gym.environments.harbor.build import BuiltEnvironment, build_environment
from training_gym.environments.harbor.environment import HarborEnvironment
from training_gym.environments.harbor.terms import Terms
from training_gym.environments.harbor.trial import TrialReport, run_trial
from training_gym.environments.harbor.verify import TaskReport, verify_task

__all__ = [
    "BuiltEnvironment",
    "HarborEnvironment",
    "TaskReport",
    "Terms",
    "TrialReport",
    "build_environment",
    "run_trial",
    "verify_task",
]
