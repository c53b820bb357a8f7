"""The loop: evaluate, learn batch after batch, record, write checkpoints, evaluate again."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.evaluations import Evaluations
from training_gym.engines.local.meters import Meter
from training_gym.engines.local.requests import Requests
from training_gym.engines.local.state import STATE_FILE, Progress
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.records.activity import Activity
from training_gym.records.checkpoints import Checkpoint, CheckpointInfo, write_checkpoint
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.recipe import Recipe

WeightsKind = Literal["full", "adapter"]


class Learner(Protocol):
    """One batch of learning, whatever is learned from."""

    async def learn(self, progress: Progress) -> tuple[Progress, dict[str, float]]:
        """Learn from one batch; the new position and the batch's metrics."""
        ...

    async def close(self) -> None:
        """Give up what is in play for later batches."""
        ...


class Loop:
    """Runs a training from wherever `progress` stands to its end."""

    def __init__(
        self,
        recipe: Recipe,
        progress: Progress,
        *,
        run: RunDirectory,
        learner: Learner,
        trainer: LocalTrainer,
        compute: Compute,
        evaluations: Evaluations,
        recorder: Recorder,
        requests: Requests,
        weights_kind: WeightsKind,
        base_sha256: Callable[[], str | None],
        failures: Callable[[], tuple[int, int]],
        start_cold: Callable[[], Awaitable[None]],
        saved: Checkpoint | None = None,
        activity: Activity,
        meter: Meter,
    ) -> None:
        """Go on from `progress`, which was read from the checkpoint `saved` if there is one.

        `failures` gives judged and failed rewards so far, to be kept over a resume; `start_cold`
        makes what comes next independent of what this process did before.
        """
        self.progress = progress
        self._recipe = recipe
        self._run = run
        self._learner = learner
        self._trainer = trainer
        self._compute = compute
        self._evaluations = evaluations
        self._recorder = recorder
        self._requests = requests
        self._weights_kind = weights_kind
        self._base_sha256 = base_sha256
        self._failures = failures
        self._start_cold = start_cold
        self._saved = saved
        self._activity = activity
        self._meter = meter
        self._unchanged = "no update was made"
        self._saved_batch = -1 if saved is None else progress.batch

    async def run(self) -> dict[str, Any]:
        """Train to the end or until asked to stop; the attempt's summary."""
        try:
            return await self._train()
        finally:
            await self._learner.close()

    async def _train(self) -> dict[str, Any]:
        self._say_what_is_played_again()
        if not await self._unless_stopped(self._baseline()):
            return self._summary("stopped")
        while self.progress.batch < self._recipe.num_steps and not self._requests.stop.is_set():
            if self._requests.paused:
                await self._pause()
                continue
            await self._batch()
            if self._due():
                await self._checkpoint()
        if self._saved_batch != self.progress.batch:
            await self._checkpoint()
        await self._learner.close()
        if self.progress.batch < self._recipe.num_steps or self._requests.stop.is_set():
            return self._summary("stopped")
        if not await self._unless_stopped(self._final()):
            return self._summary("stopped")
        return self._summary("completed")

    def _say_what_is_played_again(self) -> None:
        """An earlier attempt ended with tasks drawn, whose episodes went with it."""
        groups = len(self.progress.pending)
        if groups:
            episodes = groups * self._recipe.group_size
            self._recorder.event("episodes_played_again", groups=groups, episodes=episodes)
            message = f"{episodes} episodes were in play when the run stopped: they start again"
            print(message, file=sys.stderr, flush=True)  # noqa: T201 - becomes a log record

    async def _baseline(self) -> None:
        self.progress = await self._evaluations.before(self.progress)

    async def _final(self) -> None:
        await self._start_cold()
        await self._evaluations.after(self.progress)

    async def _batch(self) -> None:
        started, step = time.monotonic(), self.progress.optimizer_step
        if not self._recipe.max_staleness:  # else others are in play
            await self._start_cold()
        self.progress, metrics = await self._learner.learn(self.progress)
        if self.progress.optimizer_step == step:
            self._nothing_changed(why_unchanged(metrics))
        elif metrics.get("skipped"):
            self._nothing_changed("the gradient was not finite")
        judged, failed = self._failures()
        self.progress = self.progress.after(num_judged=judged, num_failed=failed)
        self._recorder.counters = self.progress.counters
        metrics |= await self._evaluations.between(self.progress)
        metrics["step_seconds"] = time.monotonic() - started
        metrics["peak_memory_gib"] = self._meter.highest() / 2**30
        self._recorder.metrics(metrics)

    def _nothing_changed(self, why: str) -> None:
        """Say so: the first time in the alerts, each time in the count."""
        count = self.progress.num_unchanged + 1
        self.progress = self.progress.after(num_unchanged=count)
        self._unchanged = f"no update was made in {count} of {self.progress.batch} steps: {why}"
        if count == 1:
            message = f"step {self.progress.batch} changed nothing: {why}"
            self._recorder.alert("no_update", message, counters=self.progress.counters)
            print(message, file=sys.stderr, flush=True)  # noqa: T201 - becomes a log record

    def _due(self) -> bool:
        every = self._recipe.checkpoints.every
        asked, self._requests.checkpoint = self._requests.checkpoint, False
        return asked or (every is not None and self.progress.batch % every == 0)

    async def _pause(self) -> None:
        """Hold between two steps until told to go on or to stop."""
        self._recorder.event("paused")
        with self._activity.at("paused"):
            await self._requests.unpaused()
        self._recorder.event("unpaused")

    async def _checkpoint(self) -> None:
        with self._activity.at("disk"):
            await self._write_checkpoint()

    async def _write_checkpoint(self) -> None:
        """Records first, then the checkpoint that refers to them."""
        self._recorder.flush(sync=True)
        info = CheckpointInfo(
            kind=self._weights_kind,
            base_sha256=self._base_sha256(),
            counters=self.progress.counters,
            position=self._recorder.position(),
        )
        self._saved = await self._compute.run(
            write_checkpoint,
            self._run,
            self.progress.optimizer_step,
            self._fill,
            info,
            self._recipe.checkpoints.keep,
        )
        self._saved_batch = self.progress.batch
        self._recorder.event(
            "checkpoint_written", step=self._saved.step, path=str(self._saved.folder)
        )

    def _fill(self, folder: Path) -> None:
        resume = folder / "resume"
        with full_disk_is_an_os_error(folder):
            self._trainer.export(str(folder))
            resume.mkdir()
            self._trainer.save(str(resume))
        (resume / STATE_FILE).write_text(self.progress.model_dump_json())

    async def _unless_stopped(self, work: Any) -> bool:
        """Do `work`, but drop it when a stop is asked for; whether it was finished."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._requests.stop.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            task.result()
            return True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return False

    def _summary(self, status: str) -> dict[str, Any]:
        saved = self._saved
        never_changed = 0 < self.progress.batch == self.progress.num_unchanged
        return {
            "status": status,
            **({"reason": f"{status}, but {self._unchanged}"} if never_changed else {}),
            "steps_without_update": self.progress.num_unchanged,
            "steps": self.progress.batch,
            "optimizer_steps": self.progress.optimizer_step,
            "checkpoint": None if saved is None else str(saved.folder),
            **self._evaluations.summary(self.progress),
        }


@contextlib.contextmanager
def full_disk_is_an_os_error(folder: Path) -> Iterator[None]:
    """Raise `OSError` where a library tells in its own way that it could not write."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        # safetensors names the system's error and takes back its file; torch leaves a full disk.
        named = f"os error {errno.ENOSPC}" in str(error)
        if named or shutil.disk_usage(folder).free < 2**20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise


def why_unchanged(metrics: Mapping[str, float]) -> str:
    """Why a batch with these metrics led to no update, in words."""
    if metrics.get("examples") == 0:
        return "no example fits the context"
    if metrics.get("episodes_dropped") == metrics.get("episodes"):
        return "no episode could be judged"
    return "the rewards within every group were equal"


def read_progress(checkpoint: Checkpoint) -> Progress:
    """Where the loop stood when the checkpoint was written."""
    return Progress.read(json.loads((checkpoint.resume / STATE_FILE).read_text()))
