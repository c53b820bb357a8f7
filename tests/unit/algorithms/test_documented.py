"""docs/algorithms.md speaks of functions that there are, and of every one."""

import importlib
import inspect
import re
from pathlib import Path

from training_gym import algorithms
from training_gym.spec.algorithms import ALGORITHMS

PAGE = (Path(__file__).parents[3] / "docs" / "algorithms.md").read_text()
ROOM = Path(algorithms.__file__).parent
INNER = {"ratios.row_totals", "ratios.row_sums", "ratios.row_means", "alignment.shared_spans",
         "losses.clipped_fraction", "advantages.leave_one_out"}  # fmt: skip
"""Helpers of other functions, and what the prose names in words."""


def public_functions():
    for file in ROOM.glob("[a-z]*.py"):
        module = importlib.import_module(f"training_gym.algorithms.{file.stem}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                yield f"{file.stem}.{name}", function


def test_every_equation_names_a_function_and_every_function_has_one():
    there = dict(public_functions())
    named = set(re.findall(r"`([a-z]+\.[a-z_]+)`", PAGE.split("## Equations")[1].split("\n## ")[0]))
    assert named <= there.keys()
    assert there.keys() - named <= INNER


def test_every_function_says_where_it_comes_from():
    source = re.compile(
        r"arXiv|Schulman|Lu 2025|\(GRPO\)|maximum likelihood|Share of|Sum of|Mean of"
    )
    assert all(source.search(function.__doc__) for _, function in public_functions())


def test_every_algorithm_has_its_section():
    sections = re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)
    assert sections == [kind.__name__ for kind in ALGORITHMS]
