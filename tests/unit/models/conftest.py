from __future__ import annotations

from pathlib import Path

import huggingface_hub.constants
import pytest

from training_gym.testing.tiny import tiny_model


@pytest.fixture(autouse=True)
def _own_home_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared tiny model: tests that change files copy it first."""
    return tiny_model(tmp_path_factory.mktemp("tiny") / "llama")
