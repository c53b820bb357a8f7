"""Runs test files, in a sandbox that holds nothing of the submission's.

Functions called `test…`, classes called `Test…` and `unittest.TestCase`; parametrised tests and
simple fixtures. The outcome of every test goes to the host over what was stdout.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import json
import os
import sys
import traceback
import unittest
from collections.abc import Callable, Iterator
from typing import Any

from training_gym.rewards.graders.inside import pytest_words
from training_gym.rewards.graders.inside.modules import install
from training_gym.rewards.graders.inside.plain import NotPlain
from training_gym.rewards.graders.inside.remote import SubmissionGone, Wire

Test = tuple[str, Callable[[], Any]]


def main() -> None:
    """Run; the first line says which files and which modules the submission has."""
    first = json.loads(sys.stdin.readline())
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.modules["pytest"] = pytest_words.words()
    wire = Wire(sys.stdin, out)
    install(wire, first["modules"])
    sys.path.insert(0, first["folder"])
    outcomes = []
    for path in first["files"]:
        for name, call in _collected(os.path.join(first["folder"], path), path):
            outcomes.append(_outcome(f"{path}::{name}", call))
    wire.send({"verdict": outcomes, "findings": wire.findings})


def _outcome(name: str, call: Callable[[], Any]) -> dict[str, str]:
    try:
        call()
    except (pytest_words.Skipped, unittest.SkipTest) as error:
        return {"name": name, "outcome": "skipped", "message": str(error)}
    except SubmissionGone as error:
        return {"name": name, "outcome": "failed", "message": f"submission gone: {error}"}
    except NotPlain as error:
        return {"name": name, "outcome": "failed", "message": str(error)}
    except BaseException as error:  # noqa: BLE001 - the boundary to a test
        last = traceback.extract_tb(error.__traceback__)[-1]
        message = (
            f"{type(error).__name__}: {error} ({os.path.basename(last.filename)}:{last.lineno})"
        )
        return {"name": name, "outcome": "failed", "message": message[:500]}
    return {"name": name, "outcome": "passed", "message": ""}


def _collected(path: str, name: str) -> Iterator[Test]:
    spec = importlib.util.spec_from_file_location(name.removesuffix(".py").replace("/", "."), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader
    found: list[Test] = []

    def load() -> None:
        loader.exec_module(module)
        fixtures = _fixtures(module)
        for key, value in list(vars(module).items()):
            if inspect.isfunction(value) and key.startswith("test"):
                found.extend(_cases(key, value, fixtures, ()))
            elif inspect.isclass(value) and issubclass(value, unittest.TestCase):
                found.extend(_unittest(value))
            elif inspect.isclass(value) and key.startswith("Test"):
                found.extend(_methods(value, fixtures))

    failed = _outcome("import", load)
    if failed["outcome"] == "failed":
        message = failed["message"]

        def tell() -> None:
            raise AssertionError(f"the file could not be imported: {message}")

        yield "import", tell
        return
    if not found:

        def none() -> None:
            raise AssertionError("the file holds no tests")

        yield "collection", none
    yield from found


def _fixtures(module: Any) -> dict[str, Callable[..., Any]]:
    return {
        key: value
        for key, value in vars(module).items()
        if inspect.isfunction(value) and pytest_words.FIXTURE in vars(value)
    }


def _cases(
    name: str, test: Callable[..., Any], fixtures: dict[str, Any], given: tuple[Any, ...]
) -> Iterator[Test]:
    cases = getattr(test, pytest_words.CASES, [{}])
    skipped = getattr(test, "__unittest_skip__", False)
    for index, case in enumerate(cases):
        label = f"{name}[{index}]" if len(cases) > 1 else name
        if skipped:
            yield label, _skipped
        else:
            yield label, functools.partial(_run, test, case, fixtures, given)


def _run(
    test: Callable[..., Any], case: dict[str, Any], fixtures: dict[str, Any], given: tuple[Any, ...]
) -> None:
    open_fixtures: list[Any] = []
    made: dict[str, Any] = {}

    def value(name: str) -> Any:
        if name in case:
            return case[name]
        if name not in fixtures:
            raise AssertionError(f"the test wants {name!r}, which is no parameter and no fixture")
        if name not in made:
            needed = {key: value(key) for key in inspect.signature(fixtures[name]).parameters}
            result = fixtures[name](**needed)
            if inspect.isgenerator(result):
                open_fixtures.append(result)
                result = next(result)
            made[name] = result
        return made[name]

    names = list(inspect.signature(test).parameters)[len(given) :]
    try:
        test(*given, **{name: value(name) for name in names})
    finally:
        for generator in reversed(open_fixtures):
            next(generator, None)


def _methods(kind: type, fixtures: dict[str, Any]) -> Iterator[Test]:
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and name.startswith("test"):

            def call(method: Callable[..., Any] = method, case: Any = None) -> None:
                instance = kind()
                if hasattr(instance, "setup_method"):
                    instance.setup_method()
                _run(method, case or {}, fixtures, (instance,))

            cases = getattr(method, pytest_words.CASES, [{}])
            for index, case in enumerate(cases):
                label = f"{kind.__name__}::{name}" + (f"[{index}]" if len(cases) > 1 else "")
                yield label, functools.partial(call, case=case)


def _unittest(kind: type[unittest.TestCase]) -> Iterator[Test]:
    for test in unittest.defaultTestLoader.loadTestsFromTestCase(kind):
        assert isinstance(test, unittest.TestCase)

        def call(test: Any = test) -> None:
            result = unittest.TestResult()
            test.run(result)
            if result.skipped:
                raise pytest_words.Skipped(result.skipped[0][1])
            for _, trace in [*result.errors, *result.failures]:
                raise AssertionError(trace.strip().splitlines()[-1])
            if result.unexpectedSuccesses:
                raise AssertionError("passed where a failure is expected")

        yield test.id().partition(".")[2] or test.id(), call


def _skipped() -> None:
    raise pytest_words.Skipped("marked so")
