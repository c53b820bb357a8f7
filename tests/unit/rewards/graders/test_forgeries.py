"""Every forgery beats the careless grader it is made for, and none of ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from training_gym.rewards.graders import (
    CommandTests,
    FunctionCases,
    ProgramCases,
    Submission,
    UnitTests,
    leave,
    submission_of,
)
from training_gym.spec.episodes import Episode, Outcome
from training_gym.spec.sandboxes import ExecRequest, SandboxSpec
from training_gym.spec.tasks import Task

sys.path.insert(0, str(Path(__file__).parent))
import naive
from forgeries import FORGERIES

HONEST = {"solution.py": b"def double(x):\n    return 2 * x\n"}
CASES = [{"args": [21], "returns": 42}, {"args": [0], "returns": 0}]
TESTS = """
from solution import double

def test():
    expected = 42
    assert double(21) == expected
"""
GRADERS = {
    "functions": (FunctionCases(function="double"), CASES[:1]),
    "tests": (UnitTests(), TESTS),
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


IN_ONE_PROCESS = CommandTests(
    command=("python3", "test_it.py"), must_fail={"test_it.py": naive.TEST.replace("42", "43")}
)


@pytest.mark.parametrize("name", sorted(set(FORGERIES) - {"stopped-clock"}))
def test_a_test_that_must_fail_gives_forgeries_away(place, name):
    forged = Submission.of(FORGERIES[name].all_files)
    verdict = place.grade(IN_ONE_PROCESS, forged, {"test_it.py": naive.TEST})
    assert verdict.score == 0.0
    # An exit that the runner takes for a failed test is no more than that.
    assert verdict.tampering or name == "sys-exit"


def test_honest_work_passes_a_command(place):
    verdict = place.grade(IN_ONE_PROCESS, Submission.of(HONEST), {"test_it.py": naive.TEST})
    assert (verdict.score, verdict.tampering) == (1.0, ())


@pytest.mark.parametrize(
    ("files", "sign"),
    [
        ({"test_it.py": b"print('fine')"}, "protected_file"),
        (
            {"solution.py": b"open('test_it.py', 'w').write('')\ndef double(x): ..."},
            "tests_changed",
        ),
        ({"solution.py": b"import os\nos._exit(0)"}, "patched_runner"),
    ],
)
def test_tests_are_put_back_before_a_command(place, files, sign):
    verdict = place.grade(IN_ONE_PROCESS, Submission.of(files), {"test_it.py": naive.TEST})
    assert verdict.score == 0.0
    assert sign in {found.kind for found in verdict.tampering}


@pytest.mark.parametrize(
    ("source", "sign"),
    [
        ("import os\nif os.fork() == 0:\n  os.setsid()\n  import time\n  time.sleep(99)\nprint(1)",
         "leftover_processes"),
        ("open('reward.txt', 'w').write('1')\nprint(1)", "verdict_file"),
        ("import glob\nfor p in glob.glob('/proc/*/environ'): print(open(p).read())",
         "suspicious_code"),
        ("print('{\"score\": 1}')\nimport os\nos._exit(0)", "suspicious_code"),
    ],
)  # fmt: skip
def test_programs_that_print_no_answer_score_zero(place, source, sign):
    cases = [{"stdin": "21", "stdout": "42"}, {"stdin": "1", "stdout": "2"}]
    forged = Submission.of({"solution.py": source.encode()})
    verdict = place.grade(ProgramCases(cases_at_once=2), forged, cases)
    assert verdict.score == 0.0
    assert sign in {found.kind for found in verdict.tampering}


def test_links_stay_behind_and_are_reported(place):
    async def left():
        async with await place.provider.create(SandboxSpec()) as sandbox:
            script = (
                "mkdir out; ln -s /etc/passwd out/solution.py; ln -s / out/all; mkfifo out/pipe; "
            )
            script += (
                "echo 'def double(x): return 2 * x' > out/real.py; ln -s out/real.py linked.py"
            )
            await sandbox.exec(ExecRequest(argv=("sh", "-c", script)))
            return await leave(sandbox, ["out", "linked.py", "absent.py"])

    task = Task(id="t", prompt="p", split_key="t")
    outcome = Outcome(artifacts=place.run(left()))
    submission = submission_of(
        Episode(id="e", task=task, group="g", outcome=outcome), "solution.py"
    )
    assert set(submission.files) == {"out/real.py"}
    assert len(submission.refused) == 5
    verdict = place.grade(FunctionCases(function="double"), submission, CASES)
    assert verdict.score == 0.0
    assert {found.kind for found in verdict.tampering} == {"link"}
