"""A run by its id: with a fake engine that counts, on the real local platform."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from training_gym.launch import Run, TrainConfig
from training_gym.platforms.local.platform import LocalPlatform
from training_gym.records.checkpoints import CheckpointInfo, Position, write_checkpoint
from training_gym.records.documents import read_document, write_document
from training_gym.records.readers import read_stream
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.episodes import Counters
from training_gym.spec.errors import (
    CheckpointError,
    DataError,
    GymError,
    PlatformError,
    RecordsError,
)
from training_gym.spec.job import Job, JobRef
from training_gym.testing.fake_engine import FakeEngine
from training_gym.testing.fake_platform import FakePlatform

PATIENCE_S = 20.0


@pytest.fixture
def local(seams: SimpleNamespace) -> Callable[..., None]:
    def use(*arguments: str) -> None:
        seams.engine = FakeEngine(*arguments)
        seams.platform = LocalPlatform()

    return use


def ready(run: Run, attempt: int = 1) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not (run.path / "attempts" / str(attempt) / "ready").exists():
        assert time.monotonic() < deadline, "the engine did not start"
        time.sleep(0.02)


def test_a_run_is_waited_for_and_its_result_read(
    config: TrainConfig, local: Callable[..., None]
) -> None:
    local()
    run = config.launch()
    result = run.wait(PATIENCE_S)
    assert (result.status, result.steps) == ("completed", 3)
    assert run.status == "completed"
    assert Run.from_id(run.id[:20]).result == result
    assert "step 3 of attempt 1" in run.logs().text
    assert run.logs(run.logs().cursor).text == ""
    with pytest.raises(PlatformError, match="has ended already: completed"):
        run.stop()
    with pytest.raises(PlatformError) as refused:
        run.resume()
    assert "nothing left to resume" in refused.value.message
    assert "resume_from_checkpoint" in refused.value.fix


def test_waiting_has_a_limit(config: TrainConfig, seams: SimpleNamespace) -> None:
    run = config.launch()  # on the fake platform, where nothing ever starts
    assert run.status == "queued"
    with pytest.raises(TimeoutError, match="is still queued after 0 s"):
        run.wait(0)


def test_a_stopped_run_is_resumed_in_its_own_folder(
    config: TrainConfig, local: Callable[..., None]
) -> None:
    local("--step-s", "0.05")
    run = config.changed(recipe=config.recipe.changed(num_steps=200)).launch()
    ready(run)
    with pytest.raises(PlatformError, match="is running"):
        run.resume()
    run.stop()
    assert run.wait(PATIENCE_S).status == "stopped"
    facts = read_document(run.path / "environment.json")
    facts["packages"]["torch"] = "0.0.1"
    write_document(run.path / "environment.json", facts)
    run.resume()
    ready(run, attempt=2)
    run.stop(now=True)
    assert run.wait(PATIENCE_S).attempts == 2
    directory = RunDirectory(run.path)
    assert directory.job(2).source_sha256 == directory.job(1).source_sha256
    stated = read_document(directory.attempt(2) / "intent.json")["deviations"]
    assert any(line.startswith("torch 0.0.1 →") for line in stated)
    events = [event for event in read_stream(directory, "events") if event["kind"] == "deviation"]
    assert events[0]["differs"] == stated


def with_checkpoint(run: Run, step: int, batch: int) -> Path:
    def fill(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"weights")
        (folder / "resume").mkdir()
        (folder / "resume" / "trainer.pt").write_bytes(b"state")

    info = CheckpointInfo(
        counters=Counters(batch=batch, optimizer_step=step, policy_version=step),
        position=Position(writer="engine", attempt=1, seq=7),
    )
    return write_checkpoint(RunDirectory(run.path), step, fill, info).folder


def test_a_fork_is_a_run_of_its_own_that_goes_on_from_a_checkpoint(
    config: TrainConfig, local: Callable[..., None]
) -> None:
    local()
    run = config.launch()
    run.wait(PATIENCE_S)
    first, second = with_checkpoint(run, 4, 1), with_checkpoint(run, 8, 2)
    fork = run.fork(4, sets=["recipe.optimizer.learning_rate=0.5", "name=hotter"])
    assert fork.wait(PATIENCE_S).status == "completed"
    assert fork.id != run.id
    assert "hotter" in fork.id
    manifest = RunDirectory(fork.path).manifest
    assert manifest.parents == (run.id, str(first))
    assert fork.plan.run.recipe.optimizer.learning_rate == 0.5
    assert manifest.origins["recipe.optimizer.learning_rate"] == "user"
    [copied] = fork.checkpoints()
    assert copied.position is None
    assert (copied.resume / "trainer.pt").read_bytes() == b"state"
    intent = read_document(RunDirectory(fork.path).attempt(1) / "intent.json")
    assert intent["resumed_from"] == str(copied.folder)
    assert run.plan.run.recipe.optimizer.learning_rate != 0.5
    assert run.fork().checkpoints()[0].step == 8
    (second / "model.safetensors").write_bytes(b"weighty")
    with pytest.raises(CheckpointError, match="does not match its hash"):
        run.fork(8)


@pytest.mark.parametrize(
    ("step", "sets", "words"),
    [
        (5, [], "no checkpoint of step 5"),
        (4, ["recipe.seed=1"], "cannot change recipe.seed"),
        (4, ["model=other"], "cannot change model"),
        (4, ["recipe.algorithm.kind=sft"], "cannot change recipe.algorithm.kind"),
        (4, ["recipe.num_stepz=1"], "no field 'num_stepz'"),
        (4, ["recipe.num_steps=1"], "nothing is left to train"),
    ],
)
def test_what_a_fork_cannot_do_is_two_lines(
    config: TrainConfig, local: Callable[..., None], step: int, sets: list[str], words: str
) -> None:
    local()
    run = config.launch()
    run.wait(PATIENCE_S)
    with pytest.raises(CheckpointError, match="has no checkpoint to fork from"):
        run.fork()
    with_checkpoint(run, 4, 1)
    with pytest.raises(GymError, match=words) as refused:
        run.fork(step, sets=sets)
    assert refused.value.fix
    assert len(Run.all()) == 1


def test_the_users_error_comes_back_as_it_was_raised(
    config: TrainConfig, local: Callable[..., None]
) -> None:
    local("--user-error")
    with pytest.raises(DataError) as raised:
        config.train(progress=lambda record: None)
    assert str(raised.value) == "no rows\nadd some"


def test_training_in_the_foreground_ends_with_the_run(
    config: TrainConfig, local: Callable[..., None]
) -> None:
    local()
    assert config.train().status == "completed"


def test_ctrl_c_stops_the_run_and_says_how_to_resume(
    config: TrainConfig, local: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    local("--step-s", "0.05")
    long = config.changed(recipe=config.recipe.changed(num_steps=400))

    def press() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not Run.all() and time.monotonic() < deadline:
            time.sleep(0.02)
        ready(Run.all()[0])
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    run = long.train()
    assert run.status == "stopped"
    said = capsys.readouterr().err
    assert "finishing the step, then a checkpoint; press Ctrl-C again to stop now" in said
    assert f"training-gym runs resume {run.id}" in said


class Refusing(FakePlatform):
    """A platform that takes no job."""

    async def submit(self, job: Job, key: str) -> JobRef:
        raise PlatformError("the queue is closed", fix="come back tomorrow")


def test_a_submission_that_was_refused_is_no_queued_run(
    config: TrainConfig, seams: SimpleNamespace
) -> None:
    seams.platform = Refusing()
    with pytest.raises(PlatformError, match="the queue is closed"):
        config.launch()
    run = Run.all()[0]
    assert run.status == "failed"
    assert str(run.failure()) == "the queue is closed\ncome back tomorrow"
    with pytest.raises(PlatformError, match="the queue is closed"):
        run.resume()
    assert RunDirectory(run.path).attempts() == [1]
    assert run.status == "failed"


def test_metrics_are_rows_with_the_counters(config: TrainConfig) -> None:
    run = config.launch()
    with Recorder(RunDirectory(run.path), writer="engine", attempt=1) as recorder:
        recorder.metrics({"reward": 0.5, "loss": 1.0}, Counters(batch=1, optimizer_step=2))
        recorder.metrics({"loss": 0.5}, Counters(batch=2))
    rows = run.metrics()
    assert [(row["batch"], row["loss"]) for row in rows] == [(1, 1.0), (2, 0.5)]
    assert rows[0]["optimizer_step"] == 2
    rewards = run.metrics("reward")
    assert [row["reward"] for row in rewards] == [0.5]
    assert "loss" not in rewards[0]
    assert run.episodes() == []
    assert run.checkpoints() == []


def test_an_unknown_or_ambiguous_id_is_refused(config: TrainConfig, home: Path) -> None:
    with pytest.raises(RecordsError, match="is called 'x'"):
        Run.from_id("x")
    one, two = config.launch(), config.launch()
    common = one.id[:2]
    assert two.id.startswith(common)
    with pytest.raises(RecordsError, match=f"2 runs begin with {common!r}"):
        Run.from_id(common)
    with pytest.raises(RecordsError) as refused:
        Run.from_id(one.id[:-1] + "z")
    assert "did you mean" in refused.value.fix
