"""While a job imports the user's file, a launch in it does nothing and results end the import."""

import subprocess
import sys
from pathlib import Path

import training_gym
from training_gym.spec.code import INSIDE_JOB

SCRIPT = """
from training_gym import TrainConfig

def reward(episode):
    return SCALE

SCALE = 3
config = TrainConfig(model="smollm2-135m", dataset=["x"], reward=reward)
run = config.launch()
again = config.train()
print("launched", run, run.is_inert, run.stop(), run.resume())
BEFORE = True
result = run.wait()
print("never printed", result.baseline["mean"])
AFTER = True
"""

LOOK = """
from training_gym.spec.code import Code
print("reward", Code(ref="script:reward").load()(None))
import script
print(script.BEFORE, hasattr(script, "AFTER"))
"""


def test_a_launch_at_top_level_does_not_break_the_import(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=tmp_path,
        env={
            "PATH": "/usr/bin:/bin",
            INSIDE_JOB: "1",
            "TRAINING_GYM_RUN": "/runs/20260101-000000-x-abcd",
            "PYTHONPATH": str(Path(training_gym.__file__).parents[1]),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "launched Run('20260101-000000-x-abcd') True None Run('20260101-000000-x-abcd')",
        "reward 3",
        "True False",
    ]
    assert done.stderr.splitlines() == ["not launching: this process only reads the definition"]
