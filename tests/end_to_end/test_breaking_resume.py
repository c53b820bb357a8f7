"""Going on from a checkpoint: the same bits, or a refusal in two lines, whatever happened to it."""

import json
import shutil

import pytest

from training_gym.jobs.forking import make_fork, require_steps_left
from training_gym.jobs.source import unpack
from training_gym.records.checkpoints import list_checkpoints
from training_gym.records.documents import read_document, write_document
from training_gym.records.readers import read_stream
from training_gym.records.results import write_result
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import SpecError
from training_gym.spec.plan import Plan

STOPPED = {"exit_code": 143, "stopped_by": "stop_now", "started_at": 1.0, "ended_at": 2.0}
EVALUATED = 'evals=[{"name": "held", "dataset": ROWS[:3], "every": 1}],'
SYSTEM = "dataset.system_prompt=You are a patient teacher who answers briefly."
"""A prefix that all prompts share, which the sampler keeps warm."""


def events(run, kind):
    return [event for event in read_stream(run, "events") if event["kind"] == kind]


@pytest.fixture(scope="module")
def original(define, play):
    """Five steps, a checkpoint and an evaluation after each; the third changes nothing."""
    reward = "return 0.5 if episode.counters.batch == 2 else varied(episode)"
    sets = ("num_steps=5", "checkpoints.every=1", "checkpoints.keep=9")
    played = play(
        define(reward=reward, more=EVALUATED), *(f"recipe.{given}" for given in sets), SYSTEM
    )
    assert played.code == 0, played.error
    assert played.summary["steps_without_update"] >= 1
    return played.run


@pytest.fixture
def long_run(original, tmp_path):
    """A copy that a test may damage."""
    return cut_back(original, tmp_path / "home" / "runs", None)


def cut_back(run, place, number):
    """A copy of the run with its first `number` checkpoints only; None: with all of them."""
    copy = RunDirectory(place / run.run_id)
    shutil.copytree(run.path, copy.path)
    kept = list_checkpoints(copy)[:number]
    for later in list_checkpoints(copy):
        if later not in kept:
            shutil.rmtree(later.folder)
    return copy


def test_a_resume_from_any_checkpoint_computes_the_same_bits(long_run, engine, trained, tmp_path):
    expected = trained(long_run)
    checkpoints = list_checkpoints(long_run)
    for number in range(len(checkpoints) + 1):
        run = cut_back(long_run, tmp_path / str(number), number)
        assert engine(run, 2).code == 0
        found = trained(run)
        assert found.metrics == expected.metrics, number
        assert found.episodes == expected.episodes, number
        assert found.evaluations == expected.evaluations, number
        assert (found.weights, found.optimizer) == (expected.weights, expected.optimizer), number


def test_a_fork_of_any_checkpoint_computes_what_its_parent_did(long_run, engine, trained):
    expected = trained(long_run)
    plan = Plan.read(read_document(long_run.plan_path))
    *earlier, last = list_checkpoints(long_run)
    for checkpoint in earlier:
        name = f"fork-{checkpoint.step}-{checkpoint.counters.batch}"
        fork = make_fork(long_run, name, plan, plan.origins, checkpoint)
        unpack(fork.source_archive.read_bytes(), fork.source, fork.manifest.source_sha256)
        assert engine(fork, 1).code == 0
        found = trained(fork)
        count = plan.run.recipe.num_steps - checkpoint.counters.batch
        assert found.metrics == expected.metrics[-count:], name
        assert (found.weights, found.optimizer) == (expected.weights, expected.optimizer), name
        assert fork.manifest.parents == (long_run.run_id, str(checkpoint.folder))
    with pytest.raises(SpecError, match="nothing is left to train"):
        require_steps_left(last, plan)


def flip(file):
    """Change one bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_damaged_checkpoints_are_passed_over_and_kept_until_replaced(long_run, engine, trained):
    expected = trained(long_run)
    *_, before, newest = list_checkpoints(long_run)
    flip(newest.resume / "trainer.pt")
    assert engine(long_run, 2).code == 0
    (told,) = events(long_run, "checkpoint_unreadable")
    assert "trainer.pt does not match its hash" in told["message"]
    *_, started = events(long_run, "attempt_started")
    assert started["resumed_from"]["optimizer_step"] == before.step
    assert trained(long_run) == expected


def test_data_that_changed_between_launch_and_resume_is_refused(long_run, engine):
    manifest = json.loads(long_run.manifest_path.read_text())
    manifest["data_sha256"] = "0" * 64
    long_run.manifest_path.write_text(json.dumps(manifest))
    resumed = engine(long_run, 2)
    assert resumed.code == 3
    assert "not those of the launch" in resumed.error["message"]


def test_a_plan_that_changed_between_launch_and_resume_is_refused(long_run, command, monkeypatch):
    monkeypatch.setenv("TRAINING_GYM_HOME", str(long_run.path.parents[1]))
    plan = json.loads(long_run.plan_path.read_text())
    plan["run"]["recipe"]["num_steps"] = 9
    long_run.plan_path.write_text(json.dumps(plan))
    (long_run.attempt(1) / "summary.json").unlink()  # as if it had been stopped before its end
    write_document(long_run.attempt(1) / "exit.json", {"attempt": 1, **STOPPED})
    write_result(long_run)
    done = command("runs", "resume", long_run.run_id)
    assert done.code == 11, done.err
    assert "recipe.num_steps = 9, but" in done.two_lines
    assert "was launched with 5" in done.two_lines
    assert long_run.attempts() == [1]


def test_starting_from_a_checkpoint_with_one_bit_changed_is_refused(long_run, define, play):
    checkpoint = list_checkpoints(long_run)[-1].folder
    flip(checkpoint / "model.safetensors")
    played = play(define(more=f"resume_from_checkpoint={str(checkpoint)!r}"))
    assert played.code == 12
    assert "does not match its hash" in played.error["message"]
