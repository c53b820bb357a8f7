"""What reading tasks gives: the tasks, a hash of them, and an account of what was left out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from training_gym.spec.settings import Settings
from training_gym.spec.tasks import Task


class DataReport(Settings):
    """What became of the rows. Nothing is left out without being counted here."""

    rows_read: int = 0
    duplicates: int = 0
    """Rows left out because an earlier row has the same prompt, answer and other columns."""
    empty_prompts: int = 0
    """Rows without a prompt: left out, unless no row has one (an environment writes its own)."""
    without_answer: int = 0
    """Tasks whose expected answer is missing."""
    dropped_by_limit: int = 0
    too_long: int = 0
    """Tasks left out because their prompt exceeds the limit in tokens."""
    columns_left_out: tuple[str, ...] = ()
    """Columns with values that JSON cannot hold, such as images."""

    def sentence(self) -> str:
        """One line for people: what was read and what was left out."""
        counts = {
            "duplicates": self.duplicates,
            "without a prompt": self.empty_prompts,
            "beyond the limit": self.dropped_by_limit,
            "too long": self.too_long,
        }
        parts = [f"{self.rows_read} rows", *(f"{n} {what}" for what, n in counts.items() if n)]
        if self.columns_left_out:
            parts.append(f"columns left out: {', '.join(self.columns_left_out)}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks in the order they are drawn, and what was left out on the way."""

    tasks: tuple[Task, ...]
    sha256: str
    """Hash of these tasks in this order."""
    report: DataReport


def hash_tasks(tasks: Sequence[Task]) -> str:
    """SHA-256 over the tasks' canonical JSON, in order."""
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(task_line(task).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def task_line(task: Task) -> str:
    """The task as one line of canonical ASCII JSON."""
    return json.dumps(
        task.model_dump(mode="json", exclude_defaults=True), sort_keys=True, separators=(",", ":")
    )
