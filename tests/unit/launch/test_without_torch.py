"""A laptop that defines, checks and submits needs neither torch, transformers nor numpy."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.unit.launch.conftest import CONFIG

import training_gym

SCRIPT = """
import json, sys

class Absent:
    "As in an environment where these are not installed."
    names = {"torch", "transformers", "numpy", "peft", "datasets", "pyarrow", "safetensors", "gguf"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

from training_gym import TrainConfig
from training_gym.launch import prepare, submit
from training_gym.platforms import registry
from training_gym.testing.fake_platform import FakePlatform

platform = FakePlatform()
registry.find = lambda name: platform


def reward(episode):
    return float(len(episode.completion))


config = TrainConfig(model="model", dataset=[f"Say {n}." for n in range(8)], reward=reward)

if __name__ == "__main__":
    prepared = prepare(config, say=print)
    run = submit(prepared)
    print(json.dumps({
        "codes": [finding.code for finding in prepared.findings],
        "jobs": list(platform.jobs),
        "id": run.id,
        "loaded": sorted(set(sys.modules) & Absent.names),
    }))
"""


def test_define_check_and_submit_without_what_trains(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model" / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (tmp_path / "model" / "chat_template.jinja").write_text("{{ messages }}")
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={
            **{k: v for k, v in os.environ.items() if k != "TRAINING_GYM_INSIDE_JOB"},
            "PYTHONPATH": str(Path(training_gym.__file__).parents[1]),
            "TRAINING_GYM_HOME": str(tmp_path / "home"),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["codes"] == ["data.lengths_deferred"]
    assert found["jobs"] == [f"{found['id']}-1"]
    assert found["loaded"] == []
    assert time.monotonic() - started < 60, "preflight is meant to take ten seconds when idle"
