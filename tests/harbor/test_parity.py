"""Our reading of Harbor task folders against the harbor package's own, in its own environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from training_gym.data.harbor import read_task
from training_gym.spec.errors import DataError

sys.path.insert(0, str(Path(__file__).parent))
from corpus import write_corpus

VERSION = "0.25.0"
NEEDED = ("pydantic>=2.12", "toml", "pathspec", "packaging")
"""What its models need; its other requirements are large and not touched here."""


def python_with_harbor() -> Path:
    """`$TRAINING_GYM_HARBOR_PYTHON`, else an environment made once beside the repository's own."""
    given = os.environ.get("TRAINING_GYM_HARBOR_PYTHON")
    if given:
        return Path(given)
    environment = Path(__file__).parents[2] / ".venv-harbor"
    python = environment / "bin" / "python"
    done = environment / f"harbor-{VERSION}"
    if done.exists():
        return python
    newer = _newer_python()
    if newer is None:
        pytest.skip("the harbor package needs Python 3.12 or newer, and there is none here")
    subprocess.run([newer, "-m", "venv", "--clear", str(environment)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, "--no-deps", f"harbor=={VERSION}"], check=True)
    subprocess.run([*install, *NEEDED], check=True)
    done.touch()
    return python


def _newer_python() -> str | None:
    # What pyenv has, it has on the path only where it is told to.
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = sorted(str(path) for path in kept.glob("3.1[2-9].*/bin/python3"))
    for name in ("python3.12", "python3.13", "python3.14", sys.executable, *installed):
        found = shutil.which(name)
        test = "import sys, venv; sys.exit(sys.version_info < (3, 12))"
        if found and subprocess.run([found, "-c", test], capture_output=True).returncode == 0:
            return found
    return None


def ours(folder: Path) -> dict | None:
    try:
        task = read_task(folder)
    except DataError:
        return None
    return {
        "name": task.name,
        "config": json.loads(task.config.model_dump_json()),
        "instructions": list(task.instructions),
        "digest": task.digest,
    }


def plain(value: object) -> object:
    """Without empty headers, which the package leaves out when it writes."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if (key, item) != ("headers", {})}
    return [plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_same_tasks_same_parse(tmp_path):
    python = python_with_harbor()
    names = write_corpus(tmp_path)
    script = Path(__file__).with_name("theirs.py")
    done = subprocess.run(
        [str(python), str(script), str(tmp_path)], capture_output=True, text=True, check=True
    )
    theirs = json.loads(done.stdout)
    assert sorted(theirs) == names
    assert 50 < sum(found is not None for found in theirs.values()) < len(names) - 50
    for name in names:
        assert plain(ours(tmp_path / name)) == plain(theirs[name]), name
