"""`training-gym sandbox size`: words, numbers, JSON, and the reference's table."""

from __future__ import annotations

import json

import pytest

from training_gym.cli.entry import run


@pytest.fixture
def size(capsys):
    def ask(*arguments: str) -> tuple[int, str, str]:
        code = run(["sandbox", "size", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return ask


def test_the_way_to_the_answer_is_told_in_numbers(size):
    code, out, _ = size(
        *("--episodes", "200", "--hold-time", "10", "--start-time", "2", "--failure", "0.02")
    )
    assert code == 0
    assert "200 episodes that hold a sandbox 10 s acquire 20 a second" in out
    assert "2.041 s" in out
    assert "40.82 starts are under way" in out
    assert "57 spares" in out
    assert "live: 257 sandboxes" in out


def test_a_limit_that_cannot_keep_up_is_said_with_the_rate_needed(size):
    code, out, _ = size(*("--episodes", "1000", "--hold-time", "10", "--create-limit", "40"))
    assert code == 0
    assert "NO BUFFER SUFFICES: 40 creations a second cannot keep up with 100" in out
    assert "episodes to under 400" in out


def test_json_carries_every_step(size):
    code, out, _ = size(
        *("--episodes", "1000", "--hold-time", "200", "--start-time", "30", "--failure", "0.05"),
        *("--first-action", "20", "--create-limit", "40", "--grader-rate", "1000", "--json"),
    )
    answer = json.loads(out)
    assert code == 0
    assert answer["schema"] == "sandbox.size/1"
    assert answer["size"]["spares"] == 189
    assert answer["graders"] == 2028
    assert answer["burst_spares"] > 1
    assert answer["step"] == []


def test_the_ten_thousand_rollout_table(size):
    code, out, _ = size("--episodes", "10000", "--rollouts", "10000")
    rows = [line.split("\t") for line in out.splitlines() if line.count("\t") == 4]
    assert code == 0
    assert [row[0] for row in rows[1:]] == ["100", "250", "500", "1000", "2000", "5000", "10000"]
    assert rows[1][1] == "1000"
    assert [float(cell) for cell in rows[7]] == pytest.approx([10_000, 10, 10, 21, 265], rel=0.02)
    assert "cannot beat 260 s" in out


def test_prices_give_the_blocking(size):
    _, out, _ = size(
        *("--episodes", "100", "--idle-cost", "0.01", "--blocked-cost", "0.5", "--json")
    )
    assert json.loads(out)["demand"]["blocking"] == pytest.approx(0.02)
    code, _, err = size(*("--episodes", "100", "--idle-cost", "0.01"))
    assert code == 2
    assert "--blocked-cost" in err


def test_what_makes_no_sense_is_two_lines(size):
    code, _, err = size("--episodes", "10", "--hold-time", "0")
    assert code == 2
    assert "--hold-time" in err
