import os
import time

import pytest

from training_gym.records.checkpoints import CheckpointInfo, list_checkpoints, write_checkpoint
from training_gym.records.demo import DemoShape, write_demo_run
from training_gym.records.documents import write_document
from training_gym.records.processes import this_process
from training_gym.records.results import read_result
from training_gym.records.retention import Retention, RunTags, plan_removals, remove
from training_gym.records.run_directory import Manifest, RunDirectory

SHAPE = DemoShape(steps=4, groups=1, group_size=2, evaluate_every=0, answer_words=5)


@pytest.fixture
def ended(tmp_path):
    def make(run_id="r1", days=10.0):
        run = write_demo_run(tmp_path / "runs", SHAPE, run_id=run_id)
        then = time.time() - days * 86_400
        os.utime(run.result_path, (then, then))
        return run

    return make


def planned(*runs, **policy):
    tagged = [run if isinstance(run, RunTags) else RunTags(run) for run in runs]
    return [removal.path for removal in plan_removals(tagged, Retention(**policy))]


def test_a_plan_touches_nothing_and_names_what_goes(ended):
    run = ended()
    before = sorted(path for path in run.path.rglob("*"))
    assert planned(run, runs_days=5) == [run.path]
    assert planned(run, runs_days=20) == []
    assert sorted(path for path in run.path.rglob("*")) == before


def test_without_a_policy_only_drafts_go(ended):
    run = ended()
    draft = run.checkpoints / ".4-abc.draft"
    draft.mkdir()
    strange = run.checkpoints / "notes.txt"
    strange.write_text("mine")
    assert planned(run) == [draft]


def test_running_runs_are_not_touched(tmp_path):
    manifest = Manifest(run_id="r1", created_at=1.0, run={})
    run = RunDirectory.create(tmp_path / "r1", manifest)
    write_document(run.attempt(1) / "runner.json", this_process())
    assert planned(run, runs_days=0, episodes_days=0, logs_days=0, checkpoints=1) == []


def test_tags_keep_a_run(ended):
    run = ended()
    assert planned(RunTags(run, ("keep",)), runs_days=0, episodes_days=0) == []
    assert planned(RunTags(run, ("best",)), runs_days=0, keep_tags=("best",)) == []


def test_the_checkpoint_a_result_names_stays(ended):
    run = ended()
    final = read_result(run).checkpoint.path
    write_checkpoint(run, 9, lambda folder: (folder / "w").write_text("w"), CheckpointInfo())
    kept = {str(found.folder) for found in list_checkpoints(run)} - {
        str(path) for path in planned(run, checkpoints=1)
    }
    assert kept == {final, str(run.checkpoints / "9")}


def test_a_run_that_another_started_from_stays(ended, tmp_path):
    parent = ended("parent")
    checkpoint = str(list_checkpoints(parent)[0].folder)
    child = RunDirectory.create(
        tmp_path / "runs" / "child",
        Manifest(run_id="child", created_at=1.0, run={}, parents=(checkpoint,)),
    )
    assert planned(parent, runs_days=0) == [parent.path]
    assert planned(parent, child, runs_days=0) == []
    assert checkpoint not in map(str, planned(parent, child, checkpoints=1))


def test_episodes_and_logs_go_and_the_rest_stays_readable(ended):
    run = ended()
    removals = plan_removals([RunTags(run)], Retention(episodes_days=1, logs_days=1))
    assert {path.path.parent.name for path in removals} == {"episodes", "tokens", "logs"}
    assert remove(removals) == sum(removal.size for removal in removals)
    assert read_result(run).status == "completed"
    assert list((run.streams / "metrics").iterdir())
    assert not list((run.streams / "episodes").iterdir())


def test_a_removed_run_is_gone(ended):
    run = ended()
    remove(plan_removals([RunTags(run)], Retention(runs_days=1)))
    assert not list(run.path.parent.iterdir())
