"""Tasks from files, the Hub, generators and memory: read, deduplicated, split, ordered."""

from training_gym.data.generated import own_reward
from training_gym.data.lengths import drop_long
from training_gym.data.loading import load
from training_gym.data.memory import write_rows
from training_gym.data.stream import TaskStream
from training_gym.data.taskset import DataReport, TaskSet

__all__ = [
    "DataReport",
    "TaskSet",
    "TaskStream",
    "drop_long",
    "load",
    "own_reward",
    "write_rows",
]
