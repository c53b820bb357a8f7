import os
import shutil

import pytest

from training_gym.records import checkpoints as module
from training_gym.records.checkpoints import (
    CheckpointInfo,
    latest_valid,
    list_checkpoints,
    read_checkpoint,
    verify,
    write_checkpoint,
)
from training_gym.spec.episodes import Counters
from training_gym.spec.errors import CheckpointError


def fill_with(weights=b"w", resume=b"r"):
    def fill(folder):
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "resume").mkdir()
        (folder / "resume" / "state.bin").write_bytes(resume)

    return fill


def save(run, step, keep=None, **content):
    info = CheckpointInfo(counters=Counters(batch=step, optimizer_step=step))
    return write_checkpoint(run, step, fill_with(**content), info, keep)


def steps(run):
    return [checkpoint.step for checkpoint in list_checkpoints(run)]


def test_what_is_written_is_listed_read_and_verified(run):
    written = save(run, 10)
    assert list_checkpoints(run) == [written]
    assert read_checkpoint(run.checkpoints / "10") == written
    assert written.folder == run.checkpoints / "10"
    assert written.resume.is_dir()
    assert [(file.path, file.size) for file in written.files] == [
        ("model.safetensors", 1),
        ("resume/state.bin", 1),
    ]
    assert verify(written) == []
    assert latest_valid(run) == (written, [])


def test_the_hash_covers_weights_only(run):
    first, second, third = save(run, 1), save(run, 2, resume=b"other"), save(run, 3, weights=b"x")
    assert first.sha256 == second.sha256 != third.sha256


def test_the_newest_are_kept_in_the_order_of_numbers(run):
    for step in (2, 9, 10, 11):
        save(run, step, keep=2)
    assert steps(run) == [10, 11]
    assert sorted(os.listdir(run.checkpoints)) == ["10", "11"]


def test_later_steps_of_an_attempt_that_was_cut_back_do_not_push_out_new_ones(run):
    save(run, 4)
    shutil.rmtree(save(run, 8).folder / "resume")
    save(run, 6, keep=1)
    assert steps(run) == [6, 8]
    newest, problems = latest_valid(run)
    assert newest.step == 6
    assert "resume/state.bin is missing" in problems[0]


def test_a_step_written_again_replaces_the_old(run):
    save(run, 1)
    again = save(run, 1, weights=b"new")
    assert list_checkpoints(run) == [again]
    assert os.listdir(run.checkpoints) == ["1"]


def test_damage_is_found_and_an_older_checkpoint_taken(run):
    good, cut, changed = save(run, 1), save(run, 2), save(run, 3)
    (cut.folder / "model.safetensors").write_bytes(b"")
    (changed.folder / "model.safetensors").write_bytes(b"x")
    (run.checkpoints / "4").mkdir()
    save(run, 5)
    (run.checkpoints / "5" / "checkpoint.json").write_text("{")
    newest, problems = latest_valid(run)
    assert newest == good
    assert len(problems) == 4
    assert "is not JSON" in problems[0]
    assert "holds no checkpoint" in problems[1]
    assert "does not match its hash" in problems[2]
    assert "has 0 bytes, not 1" in problems[3]
    assert verify(changed, hashes=False) == []


def test_no_checkpoint_at_all(run):
    assert latest_valid(run) == (None, [])
    assert list_checkpoints(run) == []
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        read_checkpoint(run.checkpoints / "1")


def test_a_failed_write_leaves_the_others_and_no_rubbish(run, monkeypatch):
    save(run, 1)

    def fill(folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match="No space left"):
        write_checkpoint(run, 2, fill, CheckpointInfo(), keep=1)
    with pytest.raises(CheckpointError, match="holds no file"):
        write_checkpoint(run, 2, lambda folder: None, CheckpointInfo(), keep=1)
    assert os.listdir(run.checkpoints) == ["1"]


def test_what_a_killed_writer_left_is_no_checkpoint_and_goes_away(run):
    (run.checkpoints / ".7-abc.draft").mkdir(parents=True)
    assert steps(run) == []
    save(run, 1)
    assert os.listdir(run.checkpoints) == ["1"]


def test_checkpoint_json_is_written_last(run, monkeypatch):
    seen = []
    real = module.write_document

    def write(path, document):
        seen.extend(sorted(p.name for p in path.parent.rglob("*") if p.is_file()))
        real(path, document)

    monkeypatch.setattr(module, "write_document", write)
    save(run, 1)
    assert seen == ["model.safetensors", "state.bin"]
