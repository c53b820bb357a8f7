"""How the harbor package reads every folder of a corpus, as JSON. Needs Python 3.12 and harbor.

python tests/harbor/theirs.py CORPUS
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

from harbor.models.task.task import Task  # noqa: E402
from harbor.publisher.packager import Packager  # noqa: E402


def reading(folder: Path) -> dict | None:
    if not Task.is_valid_dir(folder):
        return None
    task = Task(folder)
    steps = task.config.steps or []
    return {
        "name": task.name,
        "config": json.loads(task.config.model_dump_json()),
        "instructions": [task.step_instruction(step.name) for step in steps] or [task.instruction],
        "digest": Packager.compute_content_hash(folder)[0],
    }


corpus = Path(sys.argv[1])
folders = sorted(path for path in corpus.iterdir() if path.is_dir())
print(json.dumps({folder.name: reading(folder) for folder in folders}))
