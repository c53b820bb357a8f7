"""Waiting for runs: progress, exit codes, Ctrl-C."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time

import pytest

from training_gym.cli import following
from training_gym.cli.progress import Progress, Watch

CHANGE = {"mean": 0.2, "low": 0.1, "high": 0.3, "count": 8}
SUMMARY = {
    "status": "completed",
    "steps": 4,
    "evaluation": "held_out",
    "evaluations": {
        "held_out": {
            "baseline": {**CHANGE, "mean": 0.3},
            "final": {**CHANGE, "mean": 0.5},
            "difference": CHANGE,
        }
    },
}


def test_a_completed_run_tells_its_result(command, new_run):
    new_run().end(summary=SUMMARY)
    answer = command("runs", "wait", "r1")
    assert answer.code == 0
    assert answer.out == "r1\n"
    assert "held_out: 0.3 → 0.5, difference 0.2 (95 % 0.1 to 0.3)" in answer.err
    (found,) = command("runs", "wait", "r1", "--json").objects
    assert (found["status"], found["steps"]) == ("completed", 4)
    assert found["evaluations"]["held_out"]["difference"] == CHANGE


def test_a_stopped_run_says_how_to_resume(command, new_run):
    new_run().end(summary={"status": "stopped", "steps": 2})
    answer = command("runs", "wait", "r1")
    assert answer.code == 21
    assert "resume with: training-gym runs resume r1" in answer.err


def test_a_run_failed_by_the_users_reward_has_that_errors_code(command, new_run):
    error = {"type": "RewardError", "message": "it hung", "fix": "mend it", "exit_code": 5}
    new_run().end(error=error, exit_code=5)
    answer = command("runs", "wait", "r1", "--json")
    assert answer.code == 5
    told = answer.objects[0]["error"]
    assert (told["type"], told["message"], told["fix"]) == ("RewardError", "it hung", "mend it")
    assert told["run_id"] == "r1"


def test_a_crashed_run_has_a_code_of_its_own(command, new_run):
    new_run().end(exit_code=139, signal="SIGSEGV", reason="killed by SIGSEGV")
    answer = command("runs", "wait", "r1")
    assert answer.code == 20
    assert "training-gym logs r1" in answer.err


def test_a_run_that_vanished_is_lost(command, new_run):
    run = new_run()
    run.recorder.close()
    runner = run.files.attempt(1) / "runner.json"
    runner.write_text(runner.read_text().replace(f'"pid": {os.getpid()}', '"pid": 4194305'))
    answer = command("runs", "wait", "r1")
    assert answer.code == 22
    assert "training-gym runs resume r1" in answer.err


def test_waiting_gives_up_after_its_timeout(command, new_run):
    new_run()
    answer = command("runs", "wait", "r1", "--timeout", "0.01", "--json")
    assert answer.code == 23
    assert answer.objects[0]["error"]["type"] == "WaitTimeout"


def test_progress_counts_steps_and_estimates_the_time_left(new_run):
    run = new_run()
    watch = Watch(run.files)
    assert watch.look() == Progress(0, 4, None, None, None, "starting")
    run.recorder.event("evaluation_started", name="held_out", phase="baseline")
    run.flush()
    assert watch.look().words() == "step 0/4 · evaluating held_out"
    run.step(1)
    run.step(2, step_seconds=4.0)
    run.step(3, step_seconds=4.0)
    look = watch.look()
    assert look == Progress(3, 4, ("reward", 0.3), 25.0, 4.0, "")
    assert look.words() == "step 3/4 · reward 0.3 · 25 tokens/s · 4 s left"


def test_progress_of_supervised_training_shows_the_loss(new_run):
    run = new_run()
    run.recorder.metrics({"loss": 1.5, "train_tokens": 300, "step_seconds": 3.0})
    run.flush()
    look = Watch(run.files).look()
    assert (look.score, look.tokens_per_s) == (("loss", 1.5), 100.0)


def test_a_reward_that_is_no_number_is_not_shown_as_progress(new_run):
    run = new_run()
    run.step(1, reward_mean=float("nan"), loss=float("inf"))
    assert Watch(run.files).look().score is None


def test_a_new_attempt_forgets_the_old_speed(new_run):
    run = new_run()
    run.step(1)
    watch = Watch(run.files)
    assert watch.look().seconds_left == 6.0
    run.recorder.attempt_started()
    run.flush()
    assert watch.look().seconds_left is None


def test_plain_lines_are_written_now_and_then_and_at_the_end(capsys):
    display = following.PlainDisplay()
    for step in (0, 1, 2, 2, 4):
        display.show(Progress(step, 4, None, None, None, ""))
    assert capsys.readouterr().err.splitlines() == ["step 1/4", "step 4/4"]


class FakeRun:
    """A run that ends once it has been asked to stop at once."""

    def __init__(self, files):
        self.id, self.path, self.asked = "r1", files.path, []

    @property
    def status(self):
        return "stopped" if self.asked[-1:] == [True] else "running"

    def stop(self, now=False):
        self.asked.append(now)


def test_ctrl_c_is_handed_on_once_as_stop_and_twice_as_stop_now(new_run, monkeypatch, capsys):
    monkeypatch.setattr(following, "POLL_S", 0.01)
    run = FakeRun(new_run().files)

    def press():
        for wanted in ([False], [False, True]):
            os.kill(os.getpid(), signal.SIGINT)
            while run.asked != wanted:
                time.sleep(0.005)

    presser = threading.Timer(0.05, press)
    presser.start()
    before = signal.getsignal(signal.SIGINT)
    assert following.follow(run) is True
    presser.join()
    assert run.asked == [False, True]
    assert signal.getsignal(signal.SIGINT) is before
    told = capsys.readouterr().err
    assert "saving a checkpoint" in told
    assert "stopping at once" in told


def test_sigterm_ends_the_watching_and_says_that_the_run_goes_on(new_run, monkeypatch, capsys):
    monkeypatch.setattr(following, "POLL_S", 0.01)
    run = FakeRun(new_run().files)
    before = signal.getsignal(signal.SIGTERM)
    presser = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGTERM])
    presser.start()
    with pytest.raises(SystemExit) as left:
        following.follow(run)
    presser.join()
    assert left.value.code == 143
    assert run.asked == []
    assert signal.getsignal(signal.SIGTERM) is before
    assert f"goes on without this command; stop it: training-gym runs stop {run.id}" in (
        capsys.readouterr().err
    )


def on_a_terminal(arguments, while_running):
    """Run a command with stderr on a pseudo-terminal; returns its exit code and what that shows."""
    primary, secondary = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, "-m", "training_gym.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=secondary,
        env=environment,
    )
    os.close(secondary)
    shown = b""
    stages = iter(while_running)
    wanted, act = next(stages)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ready, _, _ = select.select([primary], [], [], 0.1)
        if ready:
            try:
                part = os.read(primary, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
        if wanted is not None and wanted in shown:
            act()
            wanted, act = next(stages, (None, None))
    out = process.stdout.read()
    process.stdout.close()
    os.close(primary)
    return process.wait(timeout=10), shown, out


def test_progress_shows_live_on_a_terminal(new_run):
    run = new_run()
    code, shown, out = on_a_terminal(
        ["runs", "wait", "r1"],
        [
            (b"starting", lambda: run.step(1)),
            (b"step 1/4", lambda: run.end(summary=SUMMARY)),
        ],
    )
    assert code == 0
    assert out == b"r1\n"
    assert b"reward 0.1" in shown
    assert re.search(rb"\x1b\[\?25l", shown)
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")


def test_ctrl_c_while_waiting_leaves_the_run_alone(new_run):
    run = new_run()
    process = subprocess.Popen(
        [sys.executable, "-m", "training_gym.cli", "runs", "wait", "r1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    run.step(1)
    assert b"step 1/4" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert (out, errors) == (b"", b"")
    assert not list(run.files.control.glob("*")) if run.files.control.exists() else True


def test_a_pipe_gets_no_control_characters(new_run):
    run = new_run()
    run.step(1)
    run.end(summary=SUMMARY)
    done = subprocess.run(
        [sys.executable, "-m", "training_gym.cli", "runs", "wait", "r1", "--json"],
        capture_output=True,
        check=True,
    )
    assert b"\x1b" not in done.stdout + done.stderr
    assert done.stdout.count(b"\n") == 1


@pytest.mark.parametrize("detach", [True, False])
def test_resuming_starts_another_attempt(command, new_run, monkeypatch, detach):
    run = new_run()
    run.end(summary={"status": "stopped"})
    asked = []
    monkeypatch.setattr("training_gym.runs.Run.resume", lambda self, say: asked.append(self.id))
    answer = command("runs", "resume", "r1", *(["--detach"] if detach else []), "--json")
    assert asked == ["r1"]
    assert answer.objects[0]["schema"] == ("runs.started/1" if detach else "runs.result/1")
    assert answer.code == (0 if detach else 21)
