import pytest

from training_gym.records.demo import DemoShape, write_demo_run
from training_gym.records.index import Index

NOW = 1.8e9


@pytest.fixture
def run(tmp_path):
    shape = DemoShape(
        kind="dead_sandbox",
        steps=6,
        groups=3,
        group_size=4,
        evaluate_every=3,
        answer_words=12,
        evaluation_tasks=4,
    )
    return write_demo_run(tmp_path / "runs", shape, run_id="r1", ended_at=NOW)


@pytest.fixture
def index(tmp_path, run):
    found = Index(tmp_path / "runs", tmp_path / "cache")
    yield found
    found.close()
