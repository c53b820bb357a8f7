import time
from pathlib import Path
from typing import Any

import pytest

from training_gym.jobs import follow as follow_module
from training_gym.jobs.control import requests
from training_gym.jobs.follow import follow, progress_lines
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.episodes import Counters


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    manifest = Manifest(run_id="followed", created_at=time.time(), run={})
    return RunDirectory.create(tmp_path / "followed", manifest)


class Clock:
    """Stands in for sleeping: the run ends after the given moments, each of which may act."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *moments: Any) -> None:
        self.moments = list(moments)
        monkeypatch.setattr(follow_module, "run_status", lambda run: self.status)
        monkeypatch.setattr(follow_module.time, "sleep", lambda seconds: self.pass_one())

    @property
    def status(self) -> str:
        return "running" if self.moments else "completed"

    def pass_one(self) -> None:
        self.moments.pop(0)()


def interrupt() -> None:
    raise KeyboardInterrupt


def nothing() -> None:
    pass


def test_every_metric_is_seen_once_and_none_is_missed(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(step: int) -> None:
        with Recorder(run, writer=f"engine{step}", attempt=1) as recorder:
            recorder.metrics({"reward": step / 10}, Counters(batch=step))

    Clock(monkeypatch, lambda: record(1), nothing, lambda: record(2))
    seen: list[dict[str, Any]] = []
    follow(run, seen.append, lambda text: None)
    assert [record["batch"] for record in seen] == [1, 2]


def test_the_first_interrupt_asks_to_stop_and_the_second_to_stop_now(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, interrupt, nothing, interrupt, nothing)
    said: list[str] = []
    follow(run, lambda record: None, said.append)
    assert [asked.kind for asked in requests(run)] == ["stop", "stop_now"]
    assert "press Ctrl-C again to stop now" in said[0]
    assert said[1] == "resume it with: training-gym runs resume followed"
    assert "stopping now" in said[2]


def test_a_line_shows_the_step_and_what_matters() -> None:
    said: list[str] = []
    show = progress_lines(20, said.append)
    show({"batch": 3, "values": {"reward": 0.51234, "loss": -0.001, "grad_norm": 1.0}})
    show({"batch": None, "values": {"reward": 1.0}})
    show({"batch": 4, "values": {"grad_norm": 1.0}})
    assert said == ["step 3/20  reward 0.5123  loss -0.001"]
