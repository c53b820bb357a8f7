import pytest

from training_gym.records.documents import read_document, write_document
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.errors import RecordsError
from training_gym.spec.job import Job, NodeGroup


def test_a_manifest_is_never_overwritten(run):
    other = Manifest(run_id="r1", created_at=2.0, run={"model": "other"})
    with pytest.raises(RecordsError, match="already exists"):
        RunDirectory.create(run.path, other)
    assert run.manifest.run == {"model": "tiny"}
    assert run.run_id == "r1"


def test_the_folder_is_named_after_the_run(tmp_path):
    with pytest.raises(RecordsError, match="cannot lie in a folder called"):
        RunDirectory.create(tmp_path / "x", Manifest(run_id="r1", created_at=1.0, run={}))


def test_a_newer_manifest_is_refused(run):
    document = read_document(run.manifest_path)
    write_document(run.manifest_path, {**document, "schema_version": 99, "new": 1})
    with pytest.raises(RecordsError, match="schema 99"):
        _ = run.manifest


def test_attempts_and_their_jobs(run):
    assert run.attempts() == []
    job = Job(run_id="r1", attempt=10, groups=(NodeGroup(command=("true",)),))
    write_document(run.attempt(10) / "job.json", job)
    write_document(run.attempt(9) / "intent.json", {})
    assert run.attempts() == [9, 10]
    assert run.job(10) == job


def test_plan_and_environment(run):
    run.write_plan({"slots": 4})
    run.write_environment({"packages": {}})
    assert read_document(run.plan_path) == {"slots": 4}
    assert read_document(run.environment_path) == {"packages": {}}
