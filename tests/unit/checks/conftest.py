import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training_gym.checks import Subject, subject
from training_gym.spec.run import RunSpec
from training_gym.testing.fake_engine import FakeEngine

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}
NO_WEIGHTS = (2).to_bytes(8, "little") + b"{}"
"""A safetensors file that holds nothing."""
REWARDS = """
import os, time

def good(episode): return float(len(episode.completion) % 7)
def picky(episode): return 1.0 / len(episode.completion)
def always(episode): return 0.5
def never(episode): return None
def nan(episode): return float("nan")
def hangs(episode): time.sleep(60)
def hangs_on_long(episode):
    time.sleep(60 if len(episode.completion) > 9000 else 0)
    return len(episode.completion)
def dies(episode): os._exit(3)
def exact(episode): return float(episode.completion.strip() == str(episode.answer))
def boxed(episode): return float("boxed{" + str(episode.answer) + "}" in episode.completion)
"""

Make = Callable[..., Subject]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The unpacked source, with a model beside the data."""
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "tasks.jsonl").write_text(
        "".join(
            json.dumps({"prompt": f"What is {n} + 1?", "answer": n + 1}) + "\n" for n in range(9)
        )
    )
    (tmp_path / "held.jsonl").write_text('{"prompt": "What is 20 + 1?", "answer": 21}\n')
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "model.safetensors").write_bytes(NO_WEIGHTS)
    (model / "chat_template.jinja").write_text("{{ messages }}")
    return tmp_path


@pytest.fixture
def make(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A subject without a tokenizer, as on a laptop without transformers."""
    monkeypatch.setenv("TRAINING_GYM_HOME", str(folder / "home"))
    monkeypatch.setattr(subject.importlib.util, "find_spec", lambda name: None)

    def made(**fields: Any) -> Subject:
        values = {
            "model": str(folder / "model"),
            "dataset": "tasks.jsonl",
            "reward": "rewards:good",
            "recipe": {"max_response_tokens": 32},
            **fields,
        }
        return Subject(RunSpec(**values), folder, folder / "home" / "runs", FakeEngine())

    return made
