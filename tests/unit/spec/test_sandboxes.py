"""Errors say what they mean for an episode; values travel and are keyed."""

from __future__ import annotations

import pickle

import pytest

from training_gym.spec.errors import SpecError
from training_gym.spec.sandboxes import (
    FAILURES,
    ExecRequest,
    ExecResult,
    RateLimited,
    SandboxDied,
    SandboxSpec,
    StartFailed,
    disposition,
)


def test_infrastructure_is_missing_never_zero() -> None:
    for error in (RateLimited, SandboxDied, StartFailed, RuntimeError):
        found = disposition(error("a", fix="b") if error is not RuntimeError else error("a"))
        assert (found.grade, found.reward_valid) == (False, False)
    for failure in FAILURES.values():
        assert disposition(failure("a", fix="b")).reward_valid


def test_errors_travel() -> None:
    back = pickle.loads(pickle.dumps(RateLimited("a", fix="b", retry_after_s=2.5)))
    assert (back.message, back.fix, back.retry_after_s) == ("a", "b", 2.5)


def test_results_keep_bytes_that_are_no_text() -> None:
    result = ExecResult(exit_code=-9, stdout=b"\xff\0", failure="exec_timeout", tier="A")
    assert ExecResult.read_json(result.model_dump_json()) == result
    with pytest.raises(FAILURES["exec_timeout"]):
        result.raise_for_failure()


def test_requests_and_keys() -> None:
    with pytest.raises(SpecError, match="exactly one of argv and code"):
        ExecRequest(argv=("a",), code="b")
    with pytest.raises(SpecError, match="exactly one of argv and code"):
        ExecRequest()
    assert SandboxSpec(tags={"a": "b"}).key == SandboxSpec().key
    assert SandboxSpec(user="root").key != SandboxSpec().key
