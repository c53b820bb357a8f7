"""Recorded runs of the embedded engine, replayed: the rules still say of them what they said."""

from pathlib import Path

import pytest

from training_gym.records.health import assess, replay
from training_gym.testing.packed_run import read, unpack

RUNS = sorted((Path(__file__).parent / "runs").glob("*.xz"))


def test_there_are_healthy_and_sick_runs_and_they_are_small():
    expected = [read(path)[0]["expected"] for path in RUNS]
    assert sum(not rules for rules in expected) >= 3
    assert len({rule for rules in expected for rule in rules}) >= 6
    assert sum(path.stat().st_size for path in RUNS) < 1_000_000


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_replay_gives_the_alerts_it_gave(path, tmp_path):
    about, _ = read(path)
    run = unpack(path, tmp_path / "r1")
    found = [[a.rule, a.environment, a.severity, a.state, a.first_step] for a in replay(run)]
    assert found == about["alerts"]
    spoke = {rule for rule, _, severity, _, _ in found if severity != "advice"}
    assert set(about["expected"]) <= spoke
    if not about["expected"]:
        assert spoke <= {"truncation"}  # a third of the first model's answers is cut off


def test_the_verdict_of_a_recorded_run(tmp_path):
    path = next(path for path in RUNS if path.stem.startswith("lost-sync"))
    run = unpack(path, tmp_path / "r1")
    mismatch = next(alert for alert in assess(run).alerts if alert.rule == "mismatch")
    assert mismatch.message.startswith("trainer and sampler disagree")
