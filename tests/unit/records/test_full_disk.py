"""The real thing: a small disk that fills up, and one that turns read-only."""

import subprocess
import sys

import pytest

from training_gym.records.checkpoints import CheckpointInfo, list_checkpoints, write_checkpoint
from training_gym.records.readers import read_episodes, read_page
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.errors import CheckpointError, RecordsError


def mount(*arguments):
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path):
    """A disk of 256 KiB; needs root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if sys.platform != "linux" or not mount("-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)):
        pytest.skip("cannot mount a small disk here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def run(disk):
    return RunDirectory.create(disk / "r1", Manifest(run_id="r1", created_at=1.0, run={}))


def test_a_full_disk_keeps_what_was_written_and_goes_on_when_there_is_room(disk, run, make_episode):
    write_checkpoint(run, 1, lambda folder: (folder / "w").touch(), CheckpointInfo())
    filler = disk / "filler"
    filler.write_bytes(b"x" * 150_000)
    recorder = Recorder(run, writer="engine", attempt=1)
    written, failure = 0, None
    while failure is None:
        recorder.episode(make_episode(written))
        try:
            recorder.flush()
            written += 1
        except RecordsError as error:
            failure = error
    assert "No space left on device" in failure.message
    assert "free some space" in failure.fix
    with pytest.raises(RecordsError):
        recorder.event("anything")
    with pytest.raises(CheckpointError, match="No space left"):
        write_checkpoint(run, 2, lambda f: (f / "w").write_bytes(b"x" * 10**6), CheckpointInfo(), 1)
    assert [checkpoint.step for checkpoint in list_checkpoints(run)] == [1]
    assert [episode.member for episode in read_episodes(run)] == list(range(written))
    filler.unlink()
    recorder.close()
    assert [episode.member for episode in read_episodes(run)] == list(range(written + 1))
    assert read_page(run, "episodes").damaged == 0


def test_a_disk_that_turned_read_only_is_said(disk, run, make_episode):
    if not mount("-o", "remount,ro", str(disk)):
        pytest.skip("cannot remount here")
    recorder = Recorder(run, writer="engine", attempt=1)
    recorder.episode(make_episode())
    with pytest.raises(RecordsError, match="Read-only") as caught:
        recorder.close()
    assert "TRAINING_GYM_HOME" in caught.value.fix
    with pytest.raises(RecordsError, match="Read-only"):
        RunDirectory.create(disk / "r2", Manifest(run_id="r2", created_at=1.0, run={}))
