import pytest

from training_gym.records.demo import DemoShape, write_demo_run
from training_gym.records.index import Index
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.episodes import Counters

NOW = 1.8e9
SMALL = {"steps": 6, "groups": 2, "group_size": 4, "evaluate_every": 3, "evaluation_tasks": 4}


@pytest.fixture
def index(tmp_path):
    found = Index(tmp_path / "runs", tmp_path / "cache")
    yield found
    found.close()


@pytest.fixture
def demo(tmp_path):
    """Write a small demo run; its id."""

    def write(kind="healthy", **shape):
        made = DemoShape(kind=kind, **{**SMALL, "answer_words": 12, **shape})
        return write_demo_run(tmp_path / "runs", made, ended_at=NOW).run_id

    return write


@pytest.fixture
def new_run(tmp_path):
    """A run directory without records."""

    def make(run_id="r1", **algorithm):
        spec = {"model": "tiny", "recipe": {"num_steps": 9, "algorithm": algorithm}}
        manifest = Manifest(run_id=run_id, created_at=1.0e9, run=spec)
        return RunDirectory.create(tmp_path / "runs" / run_id, manifest)

    return make


@pytest.fixture
def record():
    """Write metric records of one attempt."""

    def write(run, rows, *, attempt=1, writer="engine"):
        with Recorder(run, writer=writer, attempt=attempt) as recorder:
            for batch, values in rows:
                counters = Counters(batch=batch, optimizer_step=batch, policy_version=batch)
                recorder.metrics(values, counters)

    return write
