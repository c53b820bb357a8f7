"""What is light stays light: found out in processes of their own, by what they have loaded."""

import json
import subprocess
import sys
from pathlib import Path

import training_gym

SOURCE = str(Path(training_gym.__file__).parents[1])
HEAVY = (
    "torch", "transformers", "numpy", "pydantic", "ray", "modal", "starlette", "uvicorn",
    "datasets", "pyarrow", "peft", "typer", "rich", "httpx", "reasoning_gym", "scipy",
)  # fmt: skip


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": SOURCE, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_nothing_heavy() -> None:
    modules = loaded_by("import training_gym")
    assert modules.isdisjoint(HEAVY)
    assert not [name for name in modules if name.startswith("training_gym.")]


def test_defining_a_run_loads_neither_torch_nor_numpy_nor_the_launcher_for_a_value() -> None:
    modules = loaded_by("from training_gym import Recipe, GRPO, Eval, FileDataset\nRecipe()")
    assert modules.isdisjoint(set(HEAVY) - {"pydantic"})
    assert "training_gym.launch" not in modules


def test_the_launcher_itself_loads_neither_torch_nor_transformers_nor_numpy() -> None:
    modules = loaded_by("from training_gym import TrainConfig, Run")
    assert modules.isdisjoint(set(HEAVY) - {"pydantic"})
