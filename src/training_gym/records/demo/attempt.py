"""One attempt of a demo run: batches, evaluations, and what its processes say meanwhile."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from random import Random
from typing import Any

from training_gym.records.checkpoints import Position
from training_gym.records.demo import documents, texts
from training_gym.records.demo.clock import Clock, TimedWriter
from training_gym.records.demo.course import Moment, moment
from training_gym.records.demo.numbers import batch_metrics
from training_gym.records.demo.plays import Play, Player
from training_gym.records.demo.shape import DemoShape
from training_gym.records.run_directory import RunDirectory
from training_gym.records.tokens import Block
from training_gym.spec.episodes import Counters

TASKS = 400
"""Different training tasks of a run."""
HELD_OUT_FROM = 1_000_000
"""Numbers of the tasks that evaluations ask."""
SHARES = {"generation": 0.5, "reward": 0.06, "training": 0.34, "sync": 0.04}
"""Of a batch's time."""
BEAT_S = 300.0
"""Seconds between heartbeats of a run that hangs."""


class DemoAttempt:
    """Writes one attempt, batch by batch, on a clock of its own."""

    def __init__(
        self, run: RunDirectory, shape: DemoShape, player: Player, clock: Clock, number: int
    ) -> None:
        """Attempt `number` of the run."""
        self.number = number
        self.first = 1
        self.started_at = clock.now
        self._run, self._shape, self._player, self._clock = run, shape, player, clock
        self._engine = TimedWriter(run, "engine", number, clock)
        self._runner = TimedWriter(run, "runner", number, clock)
        self._figures: dict[str, dict[str, Any]] = {}
        self._means: dict[str, float] = {}
        self._checkpoint = ""
        self._batch = 0

    @property
    def ended_at(self) -> float:
        """Seconds since 1970, now."""
        return self._clock.now

    def start(self, resumed: tuple[int, Position] | None = None) -> None:
        """Begin from nothing, or behind the batch whose checkpoint is resumed."""
        self._runner.write("events", {"kind": "engine_started", "pid": 4242, "withheld": []})
        self._log("loading the model")
        self._clock.now += 5
        point = None
        if resumed is not None:
            step, position = resumed
            self.first, self._batch = step + 1, step
            point = {"optimizer_step": step, "batch": step, "position": position}
        self._engine.counters = _counters(self._batch)
        self._engine.write("events", {"kind": "attempt_started", "resumed_from": point})
        self._engine.write("events", {"kind": "model_loaded", "folder": "/models/demo"})
        if resumed is None:
            self.evaluate("baseline")

    def batch(self, step: int) -> None:
        """Collect, judge, learn, record."""
        random = Random(f"step {self._shape.seed} {step}")
        now = moment(self._shape, step, random)
        before = _counters(step - 1)
        plays = self._plays(step, now, before)
        seconds = self._work(now, before, plays, random)
        self._batch = step
        self._engine.counters = _counters(step)
        metrics = batch_metrics(self._shape, now, plays, seconds, random)
        if self._shape.price_per_hour is not None:
            spent = self._clock.now - self.started_at
            metrics["cost"] = self._shape.price_per_hour * spent / 3600
        every = self._shape.evaluate_every
        if every and step % every == 0 and step < self._shape.steps:
            begun = self._clock.now
            metrics["eval/held_out"] = self.evaluate("during")
            if "step_seconds" in metrics:
                metrics["step_seconds"] += self._clock.now - begun
        self._engine.write("metrics", {"values": metrics})
        self._say(step, metrics)
        if step in (self._shape.steps, max(1, self._shape.steps // 2)):
            self._save(step)

    def evaluate(self, phase: str) -> float:
        """Ask every held-out task; the mean."""
        if not self._shape.evaluate_every:
            return math.nan
        begun = self._clock.monotonic
        counters = _counters(self._batch)
        random = Random(f"evaluation {self._shape.seed} {self._batch}")
        now = moment(self._shape, max(1, self._batch), random)
        self._engine.write("events", {"kind": "evaluation_started", "name": "held_out"})
        self._clock.now += self._shape.step_s
        means: dict[str, float] = {}
        for number in range(self._shape.evaluation_tasks):
            task = self._player.task(HELD_OUT_FROM + number)
            key = f"held_out-{self._batch}-{task.id}"
            plays = self._player.group(task, key, now, counters, stream="eval:held_out", size=2)
            for play in plays:
                self._record(play, columns=False)
            values = [p.episode.score.value for p in plays if p.episode.score is not None]
            if values:
                means[task.id] = statistics.fmean(values)
        figure = _figure(list(means.values()))
        self._engine.write(
            "evaluations",
            {
                "name": "held_out",
                "phase": phase,
                **figure,
                "tasks": len(means),
                "episodes": 2 * self._shape.evaluation_tasks,
                "missing": 0,
                "components": {},
                "task_means": means,
            },
            counters=counters,
        )
        self._span("evaluation", "evaluation", begun, self._clock.monotonic, counters)
        self._span("generation", "evaluation", begun, self._clock.monotonic, counters)
        self._remember(phase, means, figure)
        return float(figure["mean"])

    def hang(self, seconds: float) -> None:
        """Nothing comes back from a reward any more; only the heart beats."""
        begun = self._clock.now
        self._log("waiting for the reward of 12 episodes", level="warning")
        while self._clock.now < begun + seconds:
            self._clock.now += BEAT_S
            age = self._clock.now - begun
            work = {"component": "reward", "age_s": age, "count": 12, "what": "correct"}
            self._engine.write("heartbeat", {"phase": "running", "open": [work]})
            self._runner.write("heartbeat", {"phase": "running", "engine_pid": 4242})

    def position(self) -> Position:
        """Where the engine's records stand."""
        return Position(writer="engine", attempt=self.number, seq=self._engine.seq)

    def summary(self) -> dict[str, Any]:
        """The engine's own account."""
        compared = {"held_out": self._figures} if len(self._figures) == 3 else {}
        return {
            "steps": self._batch,
            "optimizer_steps": self._batch,
            "checkpoint": self._checkpoint or None,
            **({"evaluation": "held_out", **self._figures} if compared else {}),
            "evaluations": compared,
        }

    def flush(self) -> None:
        """Write what waits."""
        self._engine.flush()
        self._runner.flush()

    def close(self) -> None:
        """The last words."""
        self._runner.write("events", {"kind": "attempt_ended", "reason": "finished"})
        self._engine.close()
        self._runner.close()

    def _plays(self, step: int, now: Moment, counters: Counters) -> list[Play]:
        found: list[Play] = []
        for number in range(self._shape.groups):
            visit = (step - 1) * self._shape.groups + number
            task = self._player.task(visit * 7919 % TASKS)
            key = f"{step - 1}-{visit}"
            size = self._shape.group_size
            found += self._player.group(task, key, now, counters, stream="train", size=size)
        return found

    def _work(
        self, now: Moment, counters: Counters, plays: list[Play], random: Random
    ) -> dict[str, float]:
        """Let a batch's time pass, with spans and episodes; its seconds by what they were for."""
        whole = self._shape.step_s * now.slowness
        begun = self._clock.monotonic
        parts = {name: share * whole for name, share in SHARES.items()}
        at = begun
        self._span("generation", "rollout", at, at + parts["generation"], counters)
        for number in range(min(self._shape.groups, 8)):
            early = at + random.uniform(0, 0.2) * parts["generation"]
            late = at + random.uniform(0.6, 1.0) * parts["generation"]
            self._span("environment", f"group {number}", early, late, counters)
        at += parts["generation"]
        self._clock.now += at - begun
        self._span("reward", "judge", at, at + parts["reward"], counters)
        for play in plays:
            self._record(play, columns=self._shape.columns)
        at += parts["reward"]
        self._span("training", "train", at, at + parts["training"], counters)
        at += parts["training"]
        self._span("sync", "update weights", at, at + parts["sync"], counters)
        self._clock.now += begun + whole - self._clock.monotonic
        return {
            "rollout_seconds": parts["generation"],
            "train_seconds": parts["training"],
            "step_seconds": whole,
        }

    def _record(self, play: Play, *, columns: bool) -> None:
        episode = play.episode
        self._engine.write("episodes", {}, counters=episode.counters, episode=episode)
        if not columns or not play.columns:
            return
        block = Block.pack(*((name, "f16", values) for name, values in play.columns.items()))
        path = episode.trajectories[0]
        self._engine.write(
            "tokens",
            {"episode": episode.id, "trajectory": 0, "start": path.prompt_length},
            counters=episode.counters,
            columns=block,
        )

    def _span(
        self, component: str, name: str, start: float, end: float, counters: Counters
    ) -> None:
        if self._shape.spans:
            fields = {"name": name, "component": component, "start": start, "end": end}
            self._engine.write("spans", fields, counters=counters)

    def _say(self, step: int, metrics: Mapping[str, float]) -> None:
        phase = {"phase": "running", "open": []}
        self._engine.write("heartbeat", phase)
        self._runner.write("heartbeat", {"phase": "running", "engine_pid": 4242})
        reward, seconds = metrics.get("reward_mean", 0.0), metrics.get("step_seconds", 0.0)
        self._log(f"step {step}: reward {reward:.3f} in {seconds:.1f} s")
        if metrics.get("infrastructure_failed_share", 0.0) > 0.3:
            self._log("ERROR sandbox: connection refused by the provider", source="stderr")
        if self._shape.kind == "hostile":
            self._log(texts.HOSTILE[step % len(texts.HOSTILE)], source=texts.HOSTILE[0])
            if step == 1:
                self._log("long " * 400_000)

    def _log(self, text: str, *, source: str = "stdout", level: str | None = None) -> None:
        if self._shape.logs:
            said = {} if level is None else {"level": level}
            self._runner.write("logs", {"text": text, "source": source, **said})

    def _save(self, step: int) -> None:
        self._engine.flush()
        folder = documents.checkpoint(
            self._run, step, self.position(), documents.meaning(self._shape)
        )
        self._checkpoint = folder
        self._engine.write("events", {"kind": "checkpoint_written", "step": step, "path": folder})

    def _remember(self, phase: str, means: dict[str, float], figure: dict[str, float]) -> None:
        named = {**figure, "count": len(means)}
        if phase == "baseline":
            self._means, self._figures = means, {"baseline": named}
        elif phase == "final" and self._figures:
            apart = [means[task] - self._means[task] for task in means if task in self._means]
            self._figures |= {
                "final": named,
                "difference": {**_figure(apart), "count": len(apart)},
            }


def _counters(batch: int) -> Counters:
    return Counters(batch=batch, optimizer_step=batch, policy_version=batch)


def _figure(values: list[float]) -> dict[str, float]:
    """Mean and normal 95 % interval."""
    mean = statistics.fmean(values) if values else math.nan
    spread = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {"mean": mean, "low": mean - 1.96 * spread, "high": mean + 1.96 * spread}
