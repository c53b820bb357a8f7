import os
import subprocess
import sys
from pathlib import Path

import training_gym


def run_script(folder, code):
    script = folder / "script.py"
    script.write_text(code)
    source = str(Path(training_gym.__file__).parents[1])
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": source},
    )


def test_a_script_that_ends_with_an_error_of_its_user_shows_two_lines(tmp_path):
    ended = run_script(tmp_path, "from training_gym import TrainConfig\nTrainConfig(modle='x')\n")
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        "error: TrainConfig has no field 'modle'",
        "fix: did you mean 'model'?",
    ]


def test_any_other_error_keeps_its_traceback(tmp_path):
    ended = run_script(tmp_path, "from training_gym import TrainConfig\n1 / 0\n")
    assert "Traceback" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr


def test_a_hook_that_somebody_has_set_stays(tmp_path):
    code = (
        "import sys\nsys.excepthook = lambda *_: print('mine')\n"
        "from training_gym import TrainConfig\nTrainConfig(modle='x')\n"
    )
    ended = run_script(tmp_path, code)
    assert (ended.stdout, ended.stderr) == ("mine\n", "")
