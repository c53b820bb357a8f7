"""A laptop with a fake engine and a fake platform, and a tiny model's files without weights."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from training_gym import launch
from training_gym.checks import run_checks, subject
from training_gym.checks.preflight import CHECKS
from training_gym.checks.reward import rewards_judge_anything
from training_gym.engines import registry as engines
from training_gym.launch import TrainConfig
from training_gym.platforms import registry as platforms
from training_gym.spec.plan import Machine
from training_gym.testing.fake_engine import FakeEngine
from training_gym.testing.fake_platform import FakePlatform

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
NO_WEIGHTS = (2).to_bytes(8, "little") + b"{}"
"""A safetensors file that holds nothing."""


def good(episode):
    return float(len(episode.completion) % 7)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("TRAINING_GYM_HOME", str(folder))
    monkeypatch.delenv("TRAINING_GYM_INSIDE_JOB", raising=False)
    monkeypatch.setattr(launch, "_told_once", False)
    return folder


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(NO_WEIGHTS)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    monkeypatch.setattr(subject.importlib.util, "find_spec", lambda name: None)
    return str(folder)


@pytest.fixture
def seams(home: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What `find` gives; a test may replace either. Rewards are tried in the tests of checks."""
    without_trials = [check for check in CHECKS if check is not rewards_judge_anything]
    monkeypatch.setattr(launch, "run_checks", lambda subject: run_checks(subject, without_trials))
    found = SimpleNamespace(
        engine=FakeEngine(), platform=FakePlatform(Machine(cpu_cores=2, memory_gib=8))
    )
    monkeypatch.setattr(engines, "find", lambda name: found.engine)
    monkeypatch.setattr(platforms, "find", lambda name: found.platform)
    return found


@pytest.fixture
def config(model: str, seams: SimpleNamespace) -> TrainConfig:
    return TrainConfig(
        name="Haiku & more!",
        model=model,
        dataset=[{"prompt": f"Write about {topic}."} for topic in ("rain", "snow", "wind", "sea")],
        reward=good,
        recipe={"num_steps": 3, "max_response_tokens": 32},
        tags=("first",),
    )
