"""Every forgery beats the careless grader it is made for, and none of ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from training_gym.rewards.graders import FunctionCases, Submission, UnitTests
from training_gym.spec.sandboxes import SandboxSpec

sys.path.insert(0, str(Path(__file__).parent))
import naive  # noqa: E402
from forgeries import FORGERIES  # noqa: E402

HONEST = {"solution.py": b"def double(x):\n    return 2 * x\n"}
CASES = [{"args": [21], "returns": 42}, {"args": [0], "returns": 0}]
TESTS = "from solution import double\n\ndef test():\n    expected = 42\n    assert double(21) == expected\n"
GRADERS = {
    "functions": (FunctionCases(function="double", timeout_s=1.5), CASES[:1]),
    "tests": (UnitTests(call_timeout_s=1.5), TESTS),
}


def believed(place, name, files):
    """What a careless grader makes of a submission."""

    async def graded():
        async with await place.provider.create(SandboxSpec()) as sandbox:
            for path, data in files.items():
                await sandbox.write_file(path, data)
            return await getattr(naive, name)(sandbox)

    return place.run(graded())


@pytest.mark.parametrize("name", sorted({forgery.beats for forgery in FORGERIES.values()}))
def test_careless_graders_grade(place, name):
    assert believed(place, name, HONEST)
    assert not believed(place, name, {"solution.py": b"def double(x):\n    return 0\n"})


@pytest.mark.parametrize("name", sorted(FORGERIES))
def test_beats_a_careless_grader(place, name):
    assert believed(place, FORGERIES[name].beats, FORGERIES[name].all_files)


@pytest.mark.parametrize("name", sorted(FORGERIES))
@pytest.mark.parametrize("kind", sorted(GRADERS))
def test_scores_zero_and_is_reported(place, kind, name):
    grader, cases = GRADERS[kind]
    verdict = place.grade(grader, Submission.of(FORGERIES[name].all_files), cases)
    assert verdict.score == 0.0
    assert {sign.kind for sign in verdict.tampering} & FORGERIES[name].signs
    assert all(sign.evidence for sign in verdict.tampering)
    assert verdict.tier == "A" or verdict.tier.startswith("B")


@pytest.mark.parametrize("kind", sorted(GRADERS))
def test_honest_work_scores_and_is_not_suspected(place, kind):
    grader, cases = GRADERS[kind]
    verdict = place.grade(grader, Submission.of(HONEST), cases)
    assert (verdict.score, verdict.tampering) == (1.0, ())
