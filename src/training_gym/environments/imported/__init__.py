"""Environments that people already have, in the formats of other projects."""

from training_gym.environments.imported.nemo_gym import NemoGymEnvironment, nemo_gym_rows
from training_gym.environments.imported.openenv import OpenEnvEnvironment
from training_gym.environments.imported.verifiers import VerifiersEnvironment, verifiers_rows

__all__ = [
    "NemoGymEnvironment",
    "OpenEnvEnvironment",
    "VerifiersEnvironment",
    "nemo_gym_rows",
    "verifiers_rows",
]
