"""Sandboxes keep their state where users of lesser rights can reach it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def reachable_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Pytest's own folders are closed to others; nobody's zygote must enter this one."""
    folder = Path(tempfile.mkdtemp(prefix="gym-"))
    folder.chmod(0o755)
    monkeypatch.setenv("TRAINING_GYM_HOME", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
