"""Harbor's task format: folders, registries and git repositories of tasks, read and checked.

Nothing here runs a task: `training_gym.environments.harbor` does.
"""

from training_gym.data.harbor.config import HarborConfig
from training_gym.data.harbor.folder import HarborTask, read_task
from training_gym.data.harbor.source import HarborFolder, folder_of, read_tasks

__all__ = ["HarborConfig", "HarborFolder", "HarborTask", "folder_of", "read_task", "read_tasks"]
