"""A launch from a notebook with a real kernel: its cells travel, its process may end."""

import json
import os
from pathlib import Path

import pytest
from tests.unit.launch.conftest import CONFIG, NO_WEIGHTS

import training_gym

CELLS = [
    "from training_gym import TrainConfig\n"
    "from training_gym.engines import registry\n"
    "from training_gym.testing.fake_engine import FakeEngine\n"
    "registry.find = lambda name: FakeEngine('--import-module', 'notebook_cells')",
    "WORDS = {'rain'}\n!echo setting up",
    "WORDS.add('snow')",
    "def reward(episode):\n    return float(len(WORDS) + len(set(episode.completion.split())))",
    "config = TrainConfig(model='model', dataset=['Say rain.'] * 3 + ['Say snow.'],\n"
    "                     reward=reward, name='from a notebook')\n"
    "run = config.launch()",
    "print(run.wait(60).status, run.id)",
    "print(run.logs().text)",
]


def test_a_notebook_launches_what_its_cells_define(tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model" / "model.safetensors").write_bytes(NO_WEIGHTS)
    (tmp_path / "model" / "chat_template.jinja").write_text("{{ messages }}")
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    hidden = "from training_gym.checks import subject\nsubject._is_installed = lambda name: False"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(hidden), *cells])
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    source = str(Path(training_gym.__file__).parents[1])
    around = {k: v for k, v in os.environ.items() if k != "TRAINING_GYM_INSIDE_JOB"}
    home = str(tmp_path / "home")
    client.execute(env={**around, "TRAINING_GYM_HOME": home, "PYTHONPATH": source})
    status, run_id = text_of(notebook.cells[-2]).split()
    assert status == "completed"
    log = text_of(notebook.cells[-1])
    assert f"imported {tmp_path / 'home' / 'runs' / run_id / 'source' / 'notebook_cells.py'}" in log
    module = (tmp_path / "home" / "runs" / run_id / "source" / "notebook_cells.py").read_text()
    assert "WORDS.add('snow')" in module
    assert "launch" not in module
    assert "echo" not in module


def text_of(cell: object) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")  # type: ignore[attr-defined]
