"""What graders accept, how they score, and what they do when the infrastructure fails."""

from __future__ import annotations

import asyncio

import pytest

from training_gym.rewards import RewardRunner
from training_gym.rewards.graders import (
    CommandTests,
    FunctionCases,
    ProgramCases,
    Submission,
    UnitTests,
)
from training_gym.rewards.graders.compare import same_output, same_value
from training_gym.rewards.graders.inside.plain import NotPlain, decode, encode
from training_gym.rewards.graders.inspection import inspect_files
from training_gym.rewards.graders.submission import last_block
from training_gym.sandboxes.pool import SandboxPool
from training_gym.sandboxes.zygote.provider import ZygoteProvider
from training_gym.spec.code import Code
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import RewardError
from training_gym.spec.messages import assistant, user
from training_gym.spec.sandboxes import SandboxDied, SandboxSpec, StartTimeout
from training_gym.spec.tasks import Task
from training_gym.testing.fake_sandboxes import FakeProvider


def of(source):
    return Submission.of({"solution.py": source.encode()})


def test_programs_in_any_language(place):
    shell = ProgramCases(command=("sh", "run.sh"), build=("cp", "source.sh", "run.sh"))
    files = Submission.of({"source.sh": b'read a b; echo $((a + b)) "$1"'})
    cases = [
        {"stdin": "1 2\n", "stdout": "3 x", "args": ["x"]},
        {"stdin": "1 2\n", "stdout": "4 "},
    ]
    verdict = place.grade(shell.changed(partial="share"), files, cases)
    assert verdict.score == 0.5
    assert [case.passed for case in verdict.cases] == [True, False]
    assert "wrote '3" in verdict.cases[1].message
    assert place.grade(shell, files, cases).score == 0.0


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print(42)\nexit(3)", "exit code 3"),
        ("print(41)", "wrote"),
    ],
)
def test_programs_that_fail_say_how(place, source, said):
    verdict = place.grade(ProgramCases(), of(source), [{"stdout": "42"}])
    assert verdict.score == 0.0
    assert said in verdict.cases[0].message


def test_what_takes_too_long_is_ended(place):
    endless = of("def f():\n    while True: pass\n")
    brief = {"timeout_s": 1.0}
    asked = [
        (ProgramCases(**brief), of("while True: pass"), [{"stdout": "42"}], "exec_timeout"),
        (FunctionCases(function="f", **brief), endless, [{}], "longer than"),
        (
            UnitTests(call_timeout_s=1.0),
            endless,
            "import solution\ndef test(): solution.f()",
            "gone",
        ),
        (UnitTests(timeout_s=2.0), endless, "def test():\n    while True: pass", "longer than"),
    ]
    for grader, submission, cases, said in asked:
        verdict = place.grade(grader, submission, cases)
        assert verdict.score == 0.0
        assert said in verdict.cases[0].message


FUNCTIONS = """
import collections
Point = collections.namedtuple("Point", "x y")
def same(x): return x
def fails(): raise KeyError("no")
def slow(): __import__("time").sleep(60)
def dies(): __import__("os").kill(__import__("os").getpid(), 9)
def prints():
    print("noise")
    return 1
def odd(): return Point(1, 2)
class Counter:
    def __init__(self): self.n = 0
class Thing:
    def double(self, x): return 2 * x
thing = Thing()
"""


@pytest.mark.parametrize(
    ("case", "passed", "said"),
    [
        ({"function": "same", "args": [[1, "a", None, True, 1.5]],
          "returns": [1, "a", None, True, 1.5]}, True, ""),
        ({"function": "same", "args": [True], "returns": 1}, False, "returned True"),
        ({"function": "same", "args": [0.1 + 0.2], "returns": 0.3}, True, ""),
        ({"function": "same", "kwargs": {"x": 2**80}, "returns": 2**80}, True, ""),
        ({"function": "fails", "raises": "LookupError"}, True, "KeyError"),
        ({"function": "fails", "raises": "ValueError"}, False, "raised KeyError"),
        ({"function": "same", "args": [1], "raises": "ValueError"}, False, "instead of raising"),
        ({"function": "dies"}, False, "exit code -9"),
        ({"function": "prints", "returns": 1}, True, ""),
        ({"function": "absent", "returns": 1}, False, "AttributeError"),
        ({"function": "odd", "returns": [1, 2]}, False, "no plain data"),
        ({"function": "Counter", "returns": 1}, False, "no plain data"),
        ({"function": "thing.double", "args": [4], "returns": 8}, True, ""),
    ],
)  # fmt: skip
def test_function_cases(place, case, passed, said):
    verdict = place.grade(FunctionCases(), of(FUNCTIONS), [case])
    assert verdict.cases[0].passed is passed
    assert said in verdict.cases[0].message


def test_a_process_that_dies_takes_one_case_with_it(place):
    cases = [{"function": "dies"}, {"function": "same", "args": [1], "returns": 1}]
    verdict = place.grade(FunctionCases(partial="share"), of(FUNCTIONS), cases)
    assert [case.passed for case in verdict.cases] == [False, True]


def test_what_cannot_be_imported_fails_every_case(place):
    verdict = place.grade(FunctionCases(function="f"), of("syntax error"), [{}, {}])
    assert [case.message[:20] for case in verdict.cases] == ["import: raised Synta"] * 2


SHAPES = """
import math
class Shape:
    def __init__(self, side): self.side = side
    def area(self): return self.side ** 2
    def __add__(self, other): return Shape(self.side + other.side)
    def __eq__(self, other): return isinstance(other, Shape) and self.side == other.side
    def __lt__(self, other): return self.side < other.side
    def __len__(self): return self.side
    def __getitem__(self, i): return [self.side][i]
    def __contains__(self, x): return x == self.side
    def __repr__(self): return f"Shape({self.side})"
    def __enter__(self): return self
    def __exit__(self, *_): return False
class ShapeError(ValueError): ...
def check(x):
    if x < 0: raise ShapeError("negative")
    return math.sqrt(x)
def sort(items): items.sort()
def each(f, items): return [f(item) for item in items]
def numbers():
    yield from (1, 2, 3)
"""
SHAPE_TESTS = """
import unittest
import pytest
import solution
from solution import Shape, ShapeError, check, each, numbers, sort

@pytest.fixture
def shape():
    yield Shape(3)

def test_object(shape):
    assert shape.area() == 9 and shape.side == 3 and len(shape) == 3 and shape[0] == 3
    assert 3 in shape and 4 not in shape and repr(shape) == "Shape(3)"
    assert isinstance(shape, Shape) and not isinstance(3, Shape)
    assert shape + Shape(1) == Shape(4) and Shape(1) != Shape(2) and Shape(1) < Shape(2)
    shape.side = 5
    assert shape.area() == 25
    with shape as same:
        assert same == shape

def test_errors():
    with pytest.raises(ShapeError, match="negative"):
        check(-1)
    with pytest.raises(ValueError):
        solution.check(-1)

@pytest.mark.parametrize(("x", "root"), [(4, 2), (2, pytest.approx(1.41421356))])
def test_numbers(x, root):
    assert check(x) == root

def test_containers():
    items = [3, 1, 2]
    sort(items)
    assert items == [1, 2, 3]
    assert list(numbers()) == [1, 2, 3]
    assert each(lambda x: x + 1, items) == [2, 3, 4]
    assert each(check, [4]) == [2.0]

class TestCase(unittest.TestCase):
    def test_assertions(self):
        self.assertEqual(check(9), 3)
        self.assertRaises(ShapeError, check, -1)
"""


def test_unit_tests_use_what_a_submission_defines(place):
    verdict = place.grade(UnitTests(), of(SHAPES), SHAPE_TESTS)
    assert [case for case in verdict.cases if not case.passed] == []
    assert (len(verdict.cases), verdict.score, verdict.tampering) == (6, 1.0, ())


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("import solution\ndef test(): assert solution.check(4) == 3", "AssertionError"),
        ("from solution import absent", "could not be imported"),
        ("import solution", "holds no tests"),
        ("import solution\ndef test(nothing): ...", "no fixture"),
        ("import solution\ndef test(): solution.check(object())", "plain data"),
    ],
)
def test_unit_tests_that_fail_say_how(place, tests, said):
    verdict = place.grade(UnitTests(), of(SHAPES), tests)
    assert verdict.score == 0.0
    assert said in verdict.cases[0].message


@pytest.mark.parametrize("error", [SandboxDied, StartTimeout])
@pytest.mark.parametrize("grader", [ProgramCases(), FunctionCases(function="f"), UnitTests()])
def test_infrastructure_failures_are_missing_never_zero(grader, error):
    async def graded():
        provider = FakeProvider(failures=[error("gone", fix="again")] * 4)
        cases = "def test(): ..." if isinstance(grader, UnitTests) else [{"stdout": "1"}]
        cases = [{"args": []}] if isinstance(grader, FunctionCases) else cases
        return await grader.using(provider).grade(of("x = 1"), cases)

    verdict = asyncio.run(graded())
    assert (verdict.score, verdict.as_score) == (None, None)
    assert error.__name__ in verdict.reason


def test_sandboxes_come_from_a_pool_that_may_be_anothers():
    cases = [{"stdin": "4", "stdout": "8"}] * 3

    async def judged():
        provider = ZygoteProvider()
        async with SandboxPool(provider) as pool:
            grader = ProgramCases(concurrency=1).using(pool)
            verdicts = [await grader.grade(of("print(2 * int(input()))"), cases) for _ in "ab"]
            read = pool.metrics()
            await grader.aclose()
            assert (await pool.acquire(SandboxSpec())).sandbox.id, "whose pool it is closes it"
        await provider.close()
        return verdicts, read

    verdicts, read = asyncio.run(judged())
    assert [verdict.score for verdict in verdicts] == [1.0, 1.0]
    assert read.acquires == 6
    assert read.created >= 6, "each is used once"


def test_as_a_reward():
    task = Task(id="1", prompt=(user("Double it."),), answer=[{"stdin": "4", "stdout": "8"}],
                split_key="1")  # fmt: skip
    text = "Here:\n```python\nprint(2 * int(input()))\n```\nDone."
    episode = Episode(id="e", task=task, group="g", messages=(*task.prompt, assistant(text)))

    async def judged():
        reward = Code.of(ProgramCases())
        again = Code.read(reward.model_dump(mode="json"))
        async with RewardRunner(again, timeout_s=60, workers=1) as runner:
            return await runner.judge([episode])

    (judgement,) = asyncio.run(judged())
    assert judgement.score is not None
    assert judgement.score.value == 1.0
    assert judgement.score.components == {"passed": 1.0, "tampering": 0.0}
    assert judgement.score.details["tampering"] == []


@pytest.mark.parametrize(
    ("grader", "cases"),
    [
        (ProgramCases(), [{"stdin": "1"}]),
        (ProgramCases(), []),
        (FunctionCases(), "no json"),
        (FunctionCases(), [{"arguments": []}]),
        (UnitTests(), {"a.py": 1}),
        (CommandTests(command=("x",), must_fail={"a": "b"}), "text"),
    ],
)
def test_unreadable_cases_are_the_authors_fault(grader, cases):
    async def graded():
        return await grader.using(FakeProvider()).grade(of(""), cases)

    with pytest.raises(RewardError):
        asyncio.run(graded())


@pytest.mark.parametrize(
    ("expected", "written", "comparison", "same"),
    [
        ("1 2\n3", b"1 2  \n3\n\n", "lines", True),
        ("1 2", b"1  2", "lines", False),
        ("1 2", b"1\n2", "tokens", True),
        ("1.0", b"1.0000001", "numbers", True),
        ("1.0 x", b"1.1 x", "numbers", False),
        ("a\n", b"a", "exact", False),
        ("a", b"\xff", "lines", False),
    ],
)
def test_outputs(expected, written, comparison, same):
    assert same_output(expected, written, comparison) is same


def test_values_are_compared_with_their_types():
    assert same_value([1, {"a": (2.0, "x")}], [1, {"a": [2.0, "x"]}], 0)
    assert same_value(float("nan"), float("nan"), 0)
    assert not same_value(1, True, 0)
    assert not same_value("1", 1, 0)
    assert not same_value({"a": 1}, {"a": 1, "b": 2}, 0)
    assert same_value({1, 2}, {2, 1}, 0)


def test_plain_data_travels_and_nothing_else():
    value = [1, 2**70, -1.5, float("inf"), "é", None, True, (1, {2}), b"x", {1: "a"}, {"$": 1}, 1j]
    assert decode(encode(value)) == value
    assert type(decode(encode(bytearray(b"x")))) is bytearray
    for odd in (type("Int", (int,), {})(1), object(), len, type("List", (list,), {})()):
        with pytest.raises(NotPlain):
            encode([odd])
    loop = []
    loop.append(loop)
    with pytest.raises(NotPlain):
        encode(loop)
    for damaged in ({"$": "int", "v": 1}, {"$": "what"}, {"$": "dict", "v": [1]}):
        with pytest.raises(NotPlain):
            decode(damaged)


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("a\n```python\nx = 1\n```\nb\n```\ny\n```", "y\n"),
        ("~~~py\n```\n~~~\n", "```\n"),
        ("x = 1", "x = 1"),
        ("````\n```\nin\n```\n````\n", "```\nin\n```\n"),
    ],
)
def test_the_last_block_is_the_submission(text, block):
    assert last_block(text) == block


def test_ordinary_source_is_not_suspected():
    source = b"""
import os, sys, json, gc, threading, functools
sys.setrecursionlimit(10000)
data = json.loads(sys.stdin.read() or "{}")
gc.collect()
class P:
    def __eq__(self, other): return self.x == other.x
def f(paths): return [os.path.join("a", p) for p in paths]
"""
    assert inspect_files({"solution.py": source, "pkg/util.py": b"x = 1", "bad.py": b"("}) == []
