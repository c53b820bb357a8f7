"""The folder of one run: where everything lies, and the manifest that says what it is.

The manifest is written once, by the launcher, and never changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, JsonValue

from training_gym.records.documents import create_document, read_document, write_document
from training_gym.spec.errors import RecordsError
from training_gym.spec.settings import Settings

if TYPE_CHECKING:
    from training_gym.spec.job import Job

SCHEMA_VERSION = 1
"""Of manifests, results, checkpoints and records; readers refuse what is newer."""

Stream = Literal[
    "metrics",
    "spans",
    "episodes",
    "tokens",
    "logs",
    "events",
    "alerts",
    "evaluations",
    "annotations",
    "heartbeat",
]


class Manifest(Settings):
    """What a run is: identity, resolved definition, hashes, parents."""

    schema_version: int = SCHEMA_VERSION
    run_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    created_at: float
    """Seconds since 1970."""
    name: str | None = None
    tags: tuple[str, ...] = ()
    run: dict[str, JsonValue]
    """The resolved `RunSpec` as plain data, so that old runs stay readable."""
    origins: dict[str, str] = {}
    """Dotted path of every leaf of `run` to where its value came from."""
    source_sha256: str | None = None
    data_sha256: str | None = None
    template_sha256: str | None = None
    """Of the chat template."""
    parents: tuple[str, ...] = ()
    """Runs and checkpoints this one started from."""
    training_gym: str = ""
    """Version that wrote it."""


@dataclass(frozen=True)
class RunDirectory:
    """`runs/<run id>/`; holds no open file and may be made for a folder that does not exist."""

    path: Path

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> RunDirectory:
        """Make the folder and its manifest; refuses a folder that already has one."""
        if path.name != manifest.run_id:
            raise RecordsError(
                f"run {manifest.run_id!r} cannot lie in a folder called {path.name!r}",
                fix="name the folder after the run",
            )
        if not create_document(path / "manifest.json", manifest):
            raise RecordsError(
                f"run {manifest.run_id!r} already exists in {path}",
                fix="choose another id; a manifest is never overwritten",
            )
        return cls(path)

    @property
    def run_id(self) -> str:
        """The run's id: the folder's name."""
        return self.path.name

    @property
    def manifest(self) -> Manifest:
        """What the launcher wrote; raises `RecordsError`."""
        document = read_document(self.manifest_path)
        require_known_schema(document, self.manifest_path)
        return Manifest.read(document)

    @property
    def manifest_path(self) -> Path:
        """What the run is."""
        return self.path / "manifest.json"

    @property
    def plan_path(self) -> Path:
        """The plan, with nothing left open."""
        return self.path / "plan.json"

    @property
    def environment_path(self) -> Path:
        """Packages, image digests, hardware."""
        return self.path / "environment.json"

    @property
    def vocabulary_path(self) -> Path:
        """The text of each token id; see `records.vocabulary`."""
        return self.path / "vocabulary.json"

    @property
    def result_path(self) -> Path:
        """The finish line."""
        return self.path / "result.json"

    @property
    def source_archive(self) -> Path:
        """The user's source as it travels."""
        return self.path / "source.tar.gz"

    @property
    def source(self) -> Path:
        """The user's source, unpacked."""
        return self.path / "source"

    @property
    def streams(self) -> Path:
        """Append-only segments, a folder for each stream."""
        return self.path / "streams"

    @property
    def checkpoints(self) -> Path:
        """One folder for each kept optimizer step."""
        return self.path / "checkpoints"

    @property
    def control(self) -> Path:
        """Requests to the running job."""
        return self.path / "control"

    def attempt(self, number: int) -> Path:
        """What was asked of the platform in this attempt, what it answered, how it ended."""
        return self.path / "attempts" / str(number)

    def attempts(self) -> list[int]:
        """Numbers of all attempts, ascending."""
        try:
            names = os.listdir(self.path / "attempts")
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def job(self, attempt: int) -> Job:
        """The job of an attempt; raises `RecordsError`."""
        from training_gym.spec.job import Job  # and with it all of a run: lists need none of it

        return Job.read(read_document(self.attempt(attempt) / "job.json"))

    def write_plan(self, plan: Mapping[str, Any] | Settings) -> None:
        """Write `plan.json`."""
        write_document(self.plan_path, plan)

    def write_environment(self, environment: Mapping[str, Any] | Settings) -> None:
        """Write `environment.json`."""
        write_document(self.environment_path, environment)


def existing_run(runs: Path, run_id: str) -> RunDirectory:
    """The run of this id in a folder; raises `RecordsError` for what is no id, or no run."""
    if not run_id or run_id.startswith(".") or set(run_id) & set("/\\\0"):
        raise RecordsError(f"{run_id!r:.80} is no run id", fix="see training-gym runs list")
    run = RunDirectory(runs / run_id)
    if not os.path.exists(run.manifest_path):  # of a name that is too long, too
        raise RecordsError(
            f"there is no run {run_id!r:.80} in {runs}", fix="see training-gym runs list"
        )
    return run


def require_trained(run: RunDirectory) -> None:
    """Raise `RecordsError` for a run without a plan because it never trained here."""
    if run.plan_path.exists():
        return
    manifest = run.manifest
    if manifest.training_gym == "demo":
        origin = "was made as a demonstration"
    elif "imported" in manifest.run:
        origin = "was imported from another tracker"
    else:
        return
    raise RecordsError(
        f"run {run.run_id} {origin} and never trained here: there is nothing to go on from",
        fix="start a run of your own: training-gym init, then training-gym train",
    )


def require_known_schema(document: Mapping[str, Any], path: Path) -> None:
    """Raise `RecordsError` if a newer version of ours wrote the document."""
    version = document.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise RecordsError(
            f"{path} has schema {version!r}; this version reads up to {SCHEMA_VERSION}",
            fix="upgrade: pip install --upgrade training-gym",
        )
