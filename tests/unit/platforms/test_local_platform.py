import asyncio
import os
import signal
import time

import pytest

from training_gym.platforms.local import platform as module
from training_gym.platforms.local.platform import LocalPlatform
from training_gym.records.documents import write_document
from training_gym.records.processes import identify, this_process
from training_gym.records.results import read_exit
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.records.status import run_status
from training_gym.spec.errors import GymError, PlatformError
from training_gym.spec.job import JobRef, NodeGroup
from training_gym.testing.fake_engine import tiny_job

ENDLESS = ("--steps", "1000000", "--step-s", "0.05")


@pytest.fixture
def run(tmp_path):
    manifest = Manifest(run_id="r1", created_at=1.0, run={"model": "tiny"})
    return RunDirectory.create(tmp_path / "r1", manifest)


@pytest.fixture
def platform(tmp_path):
    return LocalPlatform(tmp_path)


def submit(platform, job, key="k"):
    return asyncio.run(platform.submit(job, key))


def wait(platform, ref):
    deadline = time.monotonic() + 60
    while not (state := asyncio.run(platform.state(ref))).ended:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return state


def test_the_runs_folder_is_the_homes_unless_given(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path))
    rendered = LocalPlatform().render(tiny_job("r1"))
    assert str(tmp_path / "runs" / "r1") in rendered["attempts/1/command.sh"]
    assert "tiny_engine" in rendered["attempts/1/job.json"]


def test_a_submission_that_a_launcher_did_not_live_to_see_is_found(platform, run):
    ref = submit(platform, tiny_job("r1"))
    assert asyncio.run(LocalPlatform(run.path.parent).find("k")) == ref
    assert wait(platform, ref).status == "succeeded"


def test_a_launcher_killed_before_the_start_leaves_nothing_in_the_way(platform, run, monkeypatch):
    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LocalPlatform, "_start", die)
        with pytest.raises(KeyboardInterrupt):
            platform._submit(tiny_job("r1"), "k")
    assert asyncio.run(platform.find("k")) is None
    assert run_status(run) == "queued"
    assert wait(platform, submit(platform, tiny_job("r1"))).status == "succeeded"


def test_a_runner_started_by_a_launcher_that_died_is_taken_over(platform, run):
    # The registration is there, a runner has the attempt, and nobody has said so.
    platform._submissions.register("k", tiny_job("r1"))
    write_document(run.attempt(1) / "runner.json", this_process())
    ref = submit(platform, tiny_job("r1"))
    assert ref.native_id == str(os.getpid())


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (tiny_job("r1").changed(groups=(NodeGroup(count=2, command=("x",)),)), "2 nodes"),
        (tiny_job("r1").changed(groups=(NodeGroup(image="i:1", command=("x",)),)), "'i:1'"),
    ],
)
def test_what_one_machine_cannot_do_is_refused(platform, run, job, message):
    with pytest.raises(PlatformError, match=message):
        submit(platform, job)


def test_one_attempt_one_key_one_job_one_at_a_time(platform, run):
    write_document(run.attempt(1) / "job.json", tiny_job("r1", "--steps", "9"))
    with pytest.raises(PlatformError, match=r"another job\.json"):
        submit(platform, tiny_job("r1"))
    write_document(run.attempt(1) / "runner.json", this_process())
    with pytest.raises(PlatformError, match="under another key"):
        submit(platform, tiny_job("r1"), "other")
    with pytest.raises(PlatformError, match="attempt 1 of run r1 still runs"):
        submit(platform, tiny_job("r1", attempt=2), "third")


def test_a_runner_that_does_not_start_is_said(platform, run, monkeypatch):
    monkeypatch.setattr(module.sys, "executable", "/bin/false")
    with pytest.raises(PlatformError, match="did not start: it said nothing"):
        submit(platform, tiny_job("r1"))


def test_a_frozen_runner_is_cancelled_all_the_same(platform, run, monkeypatch):
    monkeypatch.setattr(module, "CANCEL_GRACE_S", 0.2)
    ref = submit(platform, tiny_job("r1", *ENDLESS))
    os.kill(int(ref.native_id), signal.SIGSTOP)
    asyncio.run(platform.cancel(ref))
    assert asyncio.run(platform.state(ref)).status == "cancelled"
    assert identify(int(ref.native_id)) is None
    assert read_exit(run, 1).reason == "cancelled"
    assert run_status(run) == "stopped"


def test_cancelling_an_old_attempt_spares_the_new(platform, run):
    first = submit(platform, tiny_job("r1"), "a")
    wait(platform, first)
    second = submit(platform, tiny_job("r1", *ENDLESS, attempt=2), "b")
    asyncio.run(platform.cancel(first))
    assert asyncio.run(platform.state(second)).status == "running"
    asyncio.run(platform.cancel(second))
    assert asyncio.run(platform.state(second)).status == "cancelled"
    assert asyncio.run(platform.state(first)).status == "succeeded"


def test_a_foreign_reference_and_cursor_are_refused(platform, run):
    with pytest.raises(PlatformError, match="'slurm' submitted 'k'"):
        asyncio.run(platform.state(JobRef(platform="slurm", key="k", native_id="1")))
    ref = submit(platform, tiny_job("r1"))
    with pytest.raises(PlatformError, match="not a cursor"):
        asyncio.run(platform.logs(ref, "x"))
    wait(platform, ref)


def test_a_home_that_cannot_be_written_is_said_in_two_lines(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GymError) as caught:
        submit(LocalPlatform(tmp_path / "file" / "runs"), tiny_job("r1"))
    assert caught.value.fix
