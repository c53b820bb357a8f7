"""Whether torch can use the device that is asked for, told from its version alone."""

import pytest
from tests.unit.checks.conftest import Make

from training_gym.checks import run_checks, surroundings


@pytest.mark.parametrize(
    ("device", "driver", "version", "codes"),
    [
        ("cuda", "/usr/bin/nvidia-smi", "2.9.0+cpu", ["requirement.cuda"]),
        ("cuda", "/usr/bin/nvidia-smi", "2.9.0", []),
        ("cuda", "/usr/bin/nvidia-smi", "2.9.0+cu128", []),
        ("cuda", None, "2.9.0+cpu", []),  # the planner says that there is no device
        ("auto", "/usr/bin/nvidia-smi", "2.9.0+cpu", []),
    ],
)
def test_a_torch_without_cuda_is_told_where_cuda_is_asked_for(
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    driver: str | None,
    version: str,
    codes: list[str],
) -> None:
    monkeypatch.setattr(surroundings.shutil, "which", lambda name: driver)
    monkeypatch.setattr(surroundings.importlib.metadata, "version", lambda name: version)
    subject = make(recipe={"engine": {"device": device}})
    found = run_checks(subject, [surroundings.torch_has_cuda])
    assert [finding.code for finding in found] == codes
    assert all(version in finding.message for finding in found)
