"""Before and after: pairs, verdict, distinctness, and how they are shown."""

import io
import json
import shlex
import sys
from pathlib import Path

import pytest
from rich.console import Console

from training_gym.cli import quickstart_report
from training_gym.cli.comparison import Comparison, Pair, compare, distinctness, pair_up
from training_gym.cli.entry import run as run_command
from training_gym.cli.program import program
from training_gym.cli.schemas import SCHEMAS
from training_gym.runs import Run

PAIR = Pair("t", "p", "rain", "the old pond", "soft rain falls", 0.1, 0.6)
BETTER = Comparison("held_out", (PAIR,), 0.2, 0.4, 0.1, 0.3, 0.5, 0.6)


def changed(**fields):
    return Comparison(**{**vars(BETTER), **fields})


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, "improved"),
        ({"trained_distinctness": 0.5}, "improved"),
        ({"trained_distinctness": 0.49}, "less_varied"),
        ({"difference_low": 0.0}, "no_difference"),
        ({"difference_low": -0.3, "difference_high": -0.1}, "worse"),
    ],
)
def test_the_verdict_follows_from_interval_and_distinctness(fields, verdict):
    assert changed(**fields).verdict == verdict


def test_distinctness_falls_when_one_verse_is_repeated_for_all():
    before, after = distinctness([("a b c d", "x y z w"), ("e f g h", "x y z v")])
    assert before == 1.0
    assert after == 5 / 8


def test_distinctness_does_not_reward_shorter_texts():
    long = "the rain and the wind and the snow and the rain"
    before, after = distinctness([(long, "the rain and the wind")])
    assert before == after


def test_distinctness_of_nothing_is_nothing():
    assert distinctness([("", "words")]) == (0.0, 0.0)


def test_pairs_are_first_and_last_evaluation_in_the_order_asked(new_run):
    run = new_run()
    episodes = [
        run.episode(f"{task} at {step}", task=task, stream="eval:e", step=step, member=member)
        for step in (0, 2, 4)
        for task in ("b", "a")
        for member in (0, 1)
    ]
    pairs = pair_up(episodes)
    assert [(pair.before, pair.after) for pair in pairs] == [
        ("b at 0", "b at 4"),
        ("b at 0", "b at 4"),
        ("a at 0", "a at 4"),
        ("a at 0", "a at 4"),
    ]
    assert pair_up(episodes[:4]) == ()


@pytest.fixture
def trained(new_run):
    run = new_run()
    for step, text, value in ((0, "the old pond\nthe old pond", 0.2), (4, "new rain falls", 0.4)):
        run.episode(text, task="t", stream="eval:held_out", step=step, value=value, answer="rain")
    figures = {"mean": 0.2, "low": 0.1, "high": 0.3, "count": 1}
    evaluation = {
        "baseline": {**figures, "mean": 0.2},
        "final": {**figures, "mean": 0.4},
        "difference": figures,
    }
    summary = {"status": "completed", "steps": 4, "evaluations": {"held_out": evaluation}}
    run.end(summary=summary)
    return Run(run.id)


def test_a_finished_run_is_compared_from_its_records(trained):
    comparison = compare(trained, "held_out")
    assert (comparison.baseline_mean, comparison.trained_mean) == (0.2, 0.4)
    assert (comparison.difference_low, comparison.difference_high) == (0.1, 0.3)
    assert comparison.pairs[0].after == "new rain falls"
    summary = quickstart_report.summary(comparison, trained, seed=3)
    assert summary.keys() == SCHEMAS["quickstart/1"].keys()
    assert summary["verdict"] == "improved"
    assert summary["wall_s"] == pytest.approx(200)
    assert json.dumps(summary)


def test_a_run_without_that_evaluation_is_a_records_error(trained):
    with pytest.raises(Exception, match="no result of the evaluation 'other'"):
        compare(trained, "other")


def drawn(comparison, run, **options):
    screen = Console(file=io.StringIO(), width=90, markup=False)
    quickstart_report.draw(screen, comparison, run, **options)
    return screen.file.getvalue()


def test_the_report_shows_both_verses_verdict_interval_and_next_steps(trained):
    shown = drawn(compare(trained, "held_out"), trained)
    assert "the old pond" in shown
    assert "new rain falls" in shown
    assert "It learned" in shown
    assert "+0.100 to +0.300" in shown
    assert str(trained.path) in shown.replace("\n", "")
    for command in quickstart_report.next_steps(trained).values():
        assert f"\n  {command}\n" in shown  # on one line


def test_every_next_step_is_a_command_that_can_be_pasted(trained, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    commands = list(quickstart_report.next_steps(trained).values())
    assert any(shlex.split(command)[-1] == "dashboard" for command in commands)
    for command in commands:
        name, *arguments = shlex.split(command)
        if arguments[0] in ("dashboard", "explain", "runs"):
            continue  # it serves for ever, needs steps or a checkpoint: see test_command_line
        assert Path(name).name == "training-gym"
        assert run_command(arguments) == 0, capsys.readouterr().err
    assert (tmp_path / "my-haiku" / "haiku.py").exists()


def test_a_run_of_one_step_is_not_asked_why_its_reward_moved(new_run):
    run = new_run()
    run.end(summary={"status": "completed", "steps": 1})
    assert not any("explain" in step for step in quickstart_report.next_steps(Run(run.id)).values())


def test_the_program_is_named_as_the_shell_finds_it(tmp_path, monkeypatch):
    script = tmp_path / "bin" / "training-gym"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == "training-gym"
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == str(script)
    monkeypatch.chdir(tmp_path)
    assert program() == "bin/training-gym"
    script.unlink()
    assert program() == "training-gym"


def test_hostile_verses_are_shown_as_text(trained):
    pair = Pair("t", "p", "[b]rain", "\x1b[2J[red]x[/red]", "a" * 999, 0.1, None)
    shown = drawn(changed(pairs=(pair,)), trained)
    assert "\x1b" not in shown
    assert "\\x1b[2J[red]x[/red]" in shown
    assert "not judged" in shown
    assert "a" * 999 not in shown.replace("\n", "").replace(" ", "")


def test_three_examples_are_of_three_topics(trained):
    pairs = [
        Pair(f"t{n // 2}", "p", f"topic{n // 2}", f"old{n}", f"new{n}", 0, 1) for n in range(8)
    ]
    shown = drawn(changed(pairs=tuple(pairs)), trained)
    assert [f"new{n}" in shown for n in range(8)] == [n in (0, 2, 4) for n in range(8)]


def test_a_smoke_run_claims_nothing(trained):
    assert "It learned" not in drawn(compare(trained, "held_out"), trained, smoke=True)
