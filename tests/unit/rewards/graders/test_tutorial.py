"""The tutorial's tasks are solvable, and its grader tells who solved them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from training_gym.rewards.graders import FunctionCases, Submission

TUTORIAL = Path(__file__).parents[4] / "tutorials" / "code_cases.py"


def test_the_tutorial_rewards_who_solves_it(place):
    spec = importlib.util.spec_from_file_location("code_cases", TUTORIAL)
    tutorial = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tutorial)
    grader = FunctionCases(**tutorial.config.reward.kwargs)
    row = next(row for row in tutorial.rows(50) if "adds" in row["prompt"])
    number = row["prompt"].split("adds ")[1].split()[0]
    right = Submission.of({"solution.py": f"def f(x):\n    return x + {number}\n".encode()})
    wrong = Submission.of({"solution.py": b"def f(x):\n    return x\n"})
    assert place.grade(grader, right, row["answer"]).score == 1.0
    assert place.grade(grader, wrong, row["answer"]).score == 0.0
