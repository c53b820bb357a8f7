"""The way of a run: define → check → plan → render → submit. No branch on engine or platform.

`TrainConfig` is the definition, `prepare` goes from it to a job, `submit` hands the job to its
platform, and `Run` is what comes back. The work of each step lies in a room below.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import PrivateAttr

from training_gym import planning
from training_gym.checks import Subject, raise_errors, run_checks
from training_gym.engines import registry as engines
from training_gym.jobs.capture import Origin, origin_of_file
from training_gym.jobs.define import define
from training_gym.jobs.definition import may_launch, read_definition
from training_gym.jobs.facts import gather_facts, version_of
from training_gym.jobs.follow import Progress, follow, progress_lines, to_stderr
from training_gym.jobs.source import pack, unpack
from training_gym.jobs.submission import new_run_id, submit_attempt
from training_gym.planning.overrides import set_paths
from training_gym.platforms import registry as platforms
from training_gym.records import remote
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.runs import Run, render_job
from training_gym.spec.bridge import run_sync
from training_gym.spec.errors import show_without_traceback
from training_gym.spec.findings import Finding
from training_gym.spec.home import runs_directory
from training_gym.spec.job import Job
from training_gym.spec.plan import Plan
from training_gym.spec.run import RunSpec

__all__ = ["Prepared", "Run", "TrainConfig", "apply_sets", "load_definition", "prepare", "submit"]

show_without_traceback()


class TrainConfig(RunSpec):
    """Everything that defines a run. Where it is written is what its paths are relative to."""

    _origin: Origin = PrivateAttr()
    _user_paths: frozenset[str] = PrivateAttr(default=frozenset())

    def __init__(self, **values: Any) -> None:
        """Define a run; a misspelt or wrong argument is a two-line `SpecError`."""
        super().__init__(**values)
        self._origin = origin_of_file(_callers_file())

    def changed(self, **values: Any) -> Self:
        """A copy with the given fields replaced, defined in the same place."""
        copy = super().changed(**values)
        copy._origin, copy._user_paths = self._origin, self._user_paths
        return copy

    def launch(self) -> Run:
        """Start the run, detached: it outlives this process.

        Inside a job, or while the command line reads the file, nothing starts: the run that comes
        back then ends the import of the file where it is asked for results.
        """
        if not may_launch():
            return _nothing_launched()
        return submit(prepare(self))

    def train(self, *, progress: Progress | None = None) -> Run:
        """Start the run and stay with it to its end; raises if it fails.

        Ctrl-C once finishes the step and writes a checkpoint, twice stops at once.

        Args:
            progress: Receives every record of the run's metrics; None: a line for each step on
                stderr, if that is a terminal.
        """
        run = self.launch()
        if run.is_inert:
            return run
        shown = progress or progress_lines(self.recipe.num_steps, _say_at_terminal)
        follow(RunDirectory(run.path), shown, to_stderr)
        if run.wait().status not in ("completed", "stopped"):
            raise run.failure()
        _say_at_terminal("look at it in the browser: training-gym dashboard")
        return run


def load_definition(where: str) -> TrainConfig:
    """The definition in `file.py`, `file.py:name` or `package.module:name`; nothing is launched."""
    return read_definition(where, TrainConfig)


def apply_sets(config: TrainConfig, sets: Iterable[str]) -> TrainConfig:
    """The definition with each `dotted.path=value` applied; these values are the user's."""
    sets = list(sets)
    changed = planning.apply_sets(config, sets)
    changed._user_paths = config._user_paths | set_paths(sets)
    return changed


@dataclass(frozen=True)
class Prepared:
    """A run that is checked, planned and rendered, but not submitted."""

    plan: Plan
    job: Job
    manifest: Manifest
    archive: bytes
    """The source as it travels."""
    findings: tuple[Finding, ...]
    """Warnings and notes of the checks."""


def prepare(config: TrainConfig, *, say: Callable[[str], None] = to_stderr) -> Prepared:
    """Define, check, plan, render; raises a `GymError` for whatever would fail later.

    Args:
        config: The definition.
        say: Receives a line where something takes long, and each warning of the checks.
    """
    with tempfile.TemporaryDirectory(prefix="training-gym-") as folder:
        staging = Path(folder)
        definition = define(config, config._origin, staging, config._user_paths)
        archive, sha256 = pack(definition.files)
        unpack(archive, staging / "source", sha256)
        engine = engines.find(definition.run.recipe.engine.kind)
        subject = Subject(definition.run, staging / "source", runs_directory(), engine, say)
        findings = run_checks(subject)
        _tell(findings, say)
        raise_errors(findings)
        plan = planning.make_plan(
            definition.run,
            subject.planned,
            run_sync(platforms.find(definition.run.compute.kind).probe()),
            definition.origins,
            longest_prompt_tokens=subject.longest_prompt_tokens,
            evaluated_episodes=subject.evaluated_episodes,
        )
        run_id = new_run_id(plan.run)
        return Prepared(
            plan=plan,
            job=render_job(plan, run_id, 1, sha256),
            manifest=_manifest(plan, run_id, sha256, subject),
            archive=archive,
            findings=tuple(findings),
        )


def submit(prepared: Prepared) -> Run:
    """Write the run directory and hand the job to its platform."""
    plan, run_id = prepared.plan, prepared.manifest.run_id
    link = remote.asked_for(prepared.manifest, os.environ)
    directory = RunDirectory.create(runs_directory() / run_id, prepared.manifest)
    if link is not None:
        link.keep(directory)
    facts = gather_facts(plan.machine, plan.run.recipe.engine.threads, plan.run.requirements)
    directory.write_plan(plan)
    directory.write_environment(facts)
    directory.source_archive.write_bytes(prepared.archive)
    submit_attempt(directory, prepared.job, platforms.find(plan.run.compute.kind), facts)
    return Run(run_id)


def _manifest(plan: Plan, run_id: str, source_sha256: str, subject: Subject) -> Manifest:
    return Manifest(
        run_id=run_id,
        created_at=time.time(),
        name=plan.run.name,
        tags=plan.run.tags,
        run=plan.run.model_dump(mode="json"),
        origins=dict(plan.origins),
        source_sha256=source_sha256,
        data_sha256=subject.data_sha256,
        template_sha256=subject.template_sha256,
        parents=(plan.run.resume_from_checkpoint,) if plan.run.resume_from_checkpoint else (),
        training_gym=version_of("training-gym") or "",
    )


def _tell(findings: Iterable[Finding], say: Callable[[str], None]) -> None:
    for finding in findings:
        if finding.severity == "warning":
            say(f"warning: {finding.message}\n  {finding.fix} [{finding.code}]")


_told_once = False


def _nothing_launched() -> Run:
    """The run that is none, with a notice the first time."""
    global _told_once
    if not _told_once:
        to_stderr("not launching: this process only reads the definition")
        _told_once = True
    return Run.inert()


def _say_at_terminal(text: str) -> None:
    if sys.stderr.isatty():
        to_stderr(text)


def _callers_file() -> str:
    """The file of the code that called into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in ("training_gym", "pydantic"):
            break
        frame = frame.f_back
    return frame.f_code.co_filename
