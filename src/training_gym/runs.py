"""`Run`: what there is to know of a run and to ask of it, from any process, by its id."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from training_gym.engines import registry as engines
from training_gym.jobs import control
from training_gym.jobs.environment import RUN
from training_gym.jobs.facts import gather_facts
from training_gym.jobs.follow import to_stderr
from training_gym.jobs.forking import (
    checkpoint_to_fork,
    make_fork,
    require_forkable,
    require_steps_left,
)
from training_gym.jobs.submission import new_run_id, newest_ref, next_attempt, submit_attempt
from training_gym.jobs.unchanged import require_unchanged
from training_gym.planning import make_plan
from training_gym.planning.overrides import apply_sets, set_paths
from training_gym.platforms import registry as platforms
from training_gym.records.checkpoints import Checkpoint, list_checkpoints
from training_gym.records.documents import read_document, read_document_if_any
from training_gym.records.health import Assessment, assess, is_paused
from training_gym.records.readers import read_episodes, read_stream
from training_gym.records.results import Result, read_result
from training_gym.records.run_directory import RunDirectory, require_trained
from training_gym.records.status import RunStatus, list_runs, reconcile, run_status
from training_gym.spec import errors
from training_gym.spec.bridge import run_sync
from training_gym.spec.code import ResultsAsked
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import EngineError, GymError, PlatformError, RecordsError
from training_gym.spec.home import runs_directory
from training_gym.spec.job import Job, LogChunk
from training_gym.spec.plan import Origin, Plan

ACTIVE = frozenset({"queued", "running"})
POLL_S = 0.2


class Run:
    """One training and all it recorded. Everything is read from its files when asked for."""

    def __init__(self, id: str) -> None:
        """The run of this id; use `Run.from_id` for one typed by a person."""
        self.id = id
        self.path = runs_directory() / id
        self.is_inert = False
        """Nothing was launched: this process belongs to a job, or only reads the definition."""

    @classmethod
    def from_id(cls, prefix: str) -> Run:
        """The run whose id begins with `prefix`; raises `RecordsError` if none or several do."""
        known = [summary.run_id for summary in list_runs(runs_directory())]
        found = [prefix] if prefix in known else [id for id in known if id.startswith(prefix)]
        if len(found) == 1 and prefix:
            return cls(found[0])
        if found:
            raise RecordsError(
                f"{len(found)} runs begin with {prefix!r}: {', '.join(found[:3])}…",
                fix="type more of the id",
            )
        raise RecordsError(
            f"no run in {runs_directory()} is called {prefix!r}",
            fix=_nearest(prefix, known),
        )

    @classmethod
    def all(cls) -> list[Run]:
        """All runs of this home, newest first."""
        return [cls(summary.run_id) for summary in list_runs(runs_directory())]

    @classmethod
    def inert(cls) -> Run:
        """What `launch()` returns where it launches nothing; inside a job it has the job's id."""
        run = cls(Path(os.environ.get(RUN, "nothing-launched")).name)
        run.is_inert = True
        return run

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    @property
    def status(self) -> RunStatus:
        """`queued`, `running`, `completed`, `stopped`, `failed` or `lost`."""
        return run_status(self._directory)

    @property
    def result(self) -> Result | None:
        """How it ended, with baseline, final evaluation and checkpoint; None: it has not."""
        return read_result(self._directory)

    @property
    def plan(self) -> Plan:
        """What runs, with nothing left open."""
        require_trained(self._directory)
        return Plan.read(read_document(self._directory.plan_path))

    def wait(self, timeout_s: float | None = None) -> Result:
        """The result, once the run has ended, however it did; raises `TimeoutError`."""
        directory = self._directory
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (status := run_status(directory)) in ACTIVE:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"run {self.id} is still {status} after {timeout_s:g} s")
            time.sleep(POLL_S)
        result = reconcile(directory)
        assert result is not None, "a run that is neither queued nor running has a result"
        return result

    def failure(self) -> GymError:
        """Why a failed or lost run is one, as the error that ended it."""
        directory, result = self._directory, reconcile(self._directory)
        said = result.error if result is not None else None
        if said is None:
            return EngineError(
                f"run {self.id} has not failed", fix=f"see training-gym runs show {self.id}"
            )
        attempt = max(directory.attempts(), default=0)
        reported = read_document_if_any(directory.attempt(attempt) / "error.json") or {}
        kind = getattr(errors, str(reported.get("type")), EngineError)
        known = isinstance(kind, type) and issubclass(kind, GymError)
        return (kind if known else EngineError)(said.message, fix=said.fix)

    def metrics(self, name: str | None = None) -> list[dict[str, Any]]:
        """The recorded numbers, oldest first: time, the three counters, and a value each.

        Args:
            name: Only records that have this metric, and only its value; raises `RecordsError`
                if others were recorded and this one never was.
        """
        counters = ("time", "batch", "optimizer_step", "policy_version")
        found, known = [], set[str]()
        for record in read_stream(self._directory, "metrics"):
            values = record["values"]
            known.update(values)
            if name is None or name in values:
                chosen = values if name is None else {name: values[name]}
                found.append({**{key: record[key] for key in counters}, **chosen})
        if known and name is not None and name not in known:
            raise RecordsError(
                f"run {self.id} has no metric {name!r}", fix=errors.did_you_mean(name, known)
            )
        return found

    def episodes(self, stream: str | None = None, limit: int | None = None) -> list[Episode]:
        """What was played and how it was judged.

        Args:
            stream: `train`, or the name of an evaluation; None: all.
            limit: Only the newest so many.
        """
        return read_episodes(self._directory, stream=stream, limit=limit)

    def checkpoints(self) -> list[Checkpoint]:
        """The finished checkpoints, by optimizer step."""
        return list_checkpoints(self._directory)

    def logs(self, cursor: str = "") -> LogChunk:
        """What its processes wrote after `cursor`; pass the chunk's cursor to read on."""
        directory = self._directory
        ref = newest_ref(directory)
        if ref is None:
            return LogChunk(text="", cursor=cursor)
        return run_sync(platforms.find(ref.platform).logs(ref, cursor))

    def stop(self, now: bool = False) -> None:
        """Ask it to finish its step, write a checkpoint and end; `now`: to end at once."""
        if self.is_inert:
            return
        status = self.status
        if status not in ACTIVE:
            raise PlatformError(
                f"run {self.id} has ended already: {status}",
                fix=f"see training-gym runs show {self.id}",
            )
        control.request(self._directory, "stop_now" if now else "stop")

    def pause(self) -> None:
        """Ask it to hold after its step; it keeps its memory and devices until `resume()`."""
        if self.is_inert:
            return
        status = self.status
        if status != "running":
            raise PlatformError(
                f"run {self.id} cannot be paused: it is {status}",
                fix=f"see training-gym runs show {self.id}",
            )
        control.request(self._directory, "pause")

    @property
    def is_paused(self) -> bool:
        """Whether it holds until it is told to go on."""
        return self.status == "running" and is_paused(self._directory)

    def health(self) -> Assessment:
        """Its verdict in one sentence, and its alerts with evidence and what to do."""
        return assess(self._directory)

    def resume(self, *, say: Callable[[str], None] = to_stderr) -> Self:
        """Start another attempt from the newest checkpoint, in the same run directory.

        A run that is paused goes on where it is.
        The run goes on with the definition and the source it was launched with. Checkpoints that
        are damaged are passed over, and `say` hears of it.
        """
        if self.is_inert:
            return self
        if self.is_paused:
            control.request(self._directory, "unpause")
            return self
        directory, plan = self._directory, self.plan
        attempt = next_attempt(directory)
        require_unchanged(directory, plan)
        platform = platforms.find(plan.run.compute.kind)
        machine = run_sync(platform.probe())
        facts = gather_facts(machine, plan.run.recipe.engine.threads, plan.run.requirements)
        job = render_job(plan, self.id, attempt, directory.manifest.source_sha256)
        submit_attempt(directory, job, platform, facts, say)
        return self

    def fork(
        self,
        step: int | None = None,
        *,
        sets: Iterable[str] = (),
        say: Callable[[str], None] = to_stderr,
    ) -> Run:
        """Start a new run that goes on exactly where a checkpoint of this one stands.

        Args:
            step: Optimizer step of the checkpoint; None: the newest.
            sets: `dotted.path=value` for settings of the recipe that shall differ.
            say: Receives what is worth knowing.

        Raises:
            CheckpointError: no such checkpoint, or a damaged one.
            SpecError: a setting that cannot differ, or no step left to train.
        """
        if self.is_inert:
            return self
        parent, plan, sets = self._directory, self.plan, list(sets)
        for path in set_paths(sets):
            require_forkable(path)
        checkpoint = checkpoint_to_fork(parent, step)
        platform = platforms.find(plan.run.compute.kind)
        machine = run_sync(platform.probe())
        if sets:
            origins: dict[str, Origin] = {**plan.origins, **dict.fromkeys(set_paths(sets), "user")}
            changed = apply_sets(plan.run, sets)
            plan = make_plan(changed, plan.architecture, machine, origins)
        require_steps_left(checkpoint, plan)
        run = Run(new_run_id(plan.run))
        directory = make_fork(parent, run.id, plan, plan.origins, checkpoint)
        facts = gather_facts(machine, plan.run.recipe.engine.threads, plan.run.requirements)
        job = render_job(plan, run.id, 1, directory.manifest.source_sha256)
        submit_attempt(directory, job, platform, facts, say)
        return run

    @property
    def _directory(self) -> RunDirectory:
        if self.is_inert:
            raise ResultsAsked
        return RunDirectory(self.path)


def _nearest(prefix: str, known: list[str]) -> str:
    """The few ids that look most like it, or else the newest, and where all of them are."""
    if not known:
        return "start one: training-gym quickstart"
    near = difflib.get_close_matches(prefix, known, n=3, cutoff=0.5)
    near = near or [run_id for run_id in known if prefix and prefix in run_id][:3]
    said = f"did you mean {' or '.join(map(repr, near))}? all" if near else "all"
    return f"{said} of them: training-gym runs list"


def render_job(plan: Plan, run_id: str, attempt: int, source_sha256: str | None) -> Job:
    """The engine's job, with what every job takes from the definition."""
    engine = engines.find(plan.run.recipe.engine.kind)
    return engine.render(plan, run_id, attempt).changed(
        source_sha256=source_sha256,
        secrets=plan.run.secrets,
        taps=engine.taps(plan),
        max_restarts=plan.run.recipe.max_restarts,
    )
