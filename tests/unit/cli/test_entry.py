"""Errors, exit codes, and what is loaded to say little."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from training_gym.cli.entry import wants_json
from training_gym.cli.failures import RunFailed, exit_codes, report
from training_gym.spec.errors import GymError, RecordsError, SpecError


def test_no_arguments_show_the_help_on_stdout(command):
    answer = command()
    assert answer.code == 0
    assert "quickstart" in answer.out
    assert answer.err == ""


def test_version_is_data(command):
    answer = command("--version")
    assert answer.code == 0
    assert answer.out.startswith("training-gym ")


@pytest.mark.parametrize(
    ("arguments", "message", "fix"),
    [
        (["trian"], "no such command 'trian'", "did you mean 'train'?"),
        (["runs", "lsit"], "no such command 'lsit'", "did you mean 'list'?"),
        (["runs", "list", "--limt", "3"], "no such option: --limt", "did you mean --limit?"),
        (
            ["--limit", "runs", "list"],
            "--limit stands before the command",
            "options follow it: training-gym runs list --limit",
        ),
        (
            ["--limit", "3", "runs", "list"],
            "--limit 3 stands before the command",
            "options follow it: training-gym runs list --limit 3",
        ),
        (
            ["runs", "--limit", "3", "list", "-h"],
            "--limit 3 stands before the command",
            "options follow it: training-gym runs list -h --limit 3",
        ),
        (["runs", "--limit", "3"], "no such option: --limit", "see training-gym runs --help"),
        (["train"], "missing argument 'FILE[:NAME]'", "see training-gym train --help"),
        (["runs"], "missing command", "see training-gym runs --help"),
    ],
)
def test_a_wrong_command_line_is_two_lines_and_exit_code_2(command, arguments, message, fix):
    answer = command(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err == f"error: {message}\nfix: {fix}\n"


def test_a_value_out_of_range_is_a_usage_error(command):
    answer = command("runs", "list", "--limit", "0")
    assert answer.code == 2
    assert "--limit" in answer.err.splitlines()[0]
    assert len(answer.err.splitlines()) == 2


def test_errors_of_parsing_are_json_where_json_was_asked_for(command):
    answer = command("trian", "--json")
    assert answer.objects == [
        {
            "schema": "error/1",
            "error": {
                "type": "UsageError",
                "message": "no such command 'trian'",
                "fix": "did you mean 'train'?",
                "exit_code": 2,
                "run_id": None,
            },
        }
    ]


def test_json_before_a_verb_of_a_group_is_told_where_it_belongs(command):
    (told,) = command("runs", "--json", "list").objects
    assert told["error"]["message"] == "--json stands before the command"
    assert told["error"]["fix"] == "options follow it: training-gym runs list --json"


def test_json_after_two_dashes_is_no_option():
    assert wants_json(["train", "--json", "--", "x"])
    assert not wants_json(["train", "--", "--json"])


def test_a_gym_error_has_no_traceback_and_its_own_exit_code(command):
    answer = command("runs", "show", "nothing")
    assert answer.code == 11
    assert [line.split(":")[0] for line in answer.err.splitlines()] == ["error", "fix"]


def test_messages_with_newlines_and_escapes_stay_two_harmless_lines(capsys):
    code = report(SpecError("a\nb\x1b[2J", fix="c\r\nd"), as_json=False)
    assert code == 2
    assert capsys.readouterr().err == "error: a b\\x1b[2J\nfix: c\\x0d d\n"


def test_a_failed_run_reports_the_error_inside_it(capsys):
    error = RunFailed("m", fix="f", run_id="r1", kind="RewardError", exit_code=5)
    assert report(error, as_json=True) == 5
    told = json.loads(capsys.readouterr().out)["error"]
    assert told == {
        "type": "RewardError",
        "message": "m",
        "fix": "f",
        "exit_code": 5,
        "run_id": "r1",
    }


def test_a_bug_of_ours_shows_a_traceback_and_exits_with_70(command, monkeypatch):
    def broken(*_):
        raise KeyError("lost")

    monkeypatch.setattr("training_gym.records.status.list_runs", broken)
    answer = command("runs", "list", "--json")
    assert answer.code == 70
    assert "Traceback" in answer.err
    assert answer.objects[0]["error"]["type"] == "Bug"


def test_every_error_class_has_a_documented_exit_code():
    meanings = exit_codes()
    kinds = GymError.__subclasses__()
    assert {kind.exit_code for kind in kinds} <= set(meanings)
    assert "RewardError" in meanings[5]
    assert "RunFailed" not in " ".join(meanings.values())


def test_a_reader_that_leaves_is_not_an_error(new_run, home):
    run = new_run()
    run.log(*("x" * 5000 for _ in range(200)))
    command = [sys.executable, "-m", "training_gym.cli", "runs", "logs", "r1", "--limit", "200"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() in (0, 1)
    assert errors == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_stdout_is_two_lines(new_run, home):
    new_run("a")
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "training_gym.cli", "runs", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == RecordsError.exit_code
    assert (
        ended.stderr.splitlines()[0] == "error: stdout cannot be written: No space left on device"
    )
    assert len(ended.stderr.splitlines()) == 2


def test_text_that_stdout_cannot_encode_is_escaped(new_run, home):
    new_run(name="pkg ü")
    done = subprocess.run(
        [sys.executable, "-m", "training_gym.cli", "runs", "list"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"pkg \\xfc" in done.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_bug(home, closed):
    line = f'"{sys.executable}" -m training_gym.cli runs list --json {closed}'
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_loads_nothing_heavy():
    probe = (
        "import sys\n"
        "from training_gym.cli.entry import run\n"
        "code = run(['--help'])\n"
        "heavy = ('torch', 'transformers', 'numpy', 'pydantic', 'rich', 'httpx', 'asyncio')\n"
        "sys.stderr.write(' '.join(name for name in heavy if name in sys.modules))\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stderr == ""
    assert "Usage: training-gym" in done.stdout


def test_commands_are_listed_by_what_they_say_of_themselves():
    from typer.main import get_command

    from training_gym.cli.app import app

    def check(group):
        assert group.commands
        for name, (_, line) in getattr(group, "lazy", {}).items():
            command = group.commands[name]
            assert line == command.help.splitlines()[0], name
            if hasattr(command, "commands"):
                check(command)

    check(get_command(app))


def test_a_listed_command_is_not_imported():
    code = (
        "import sys; from training_gym.cli.entry import run; run(['runs', '--help']);"
        "sys.exit(any(name.startswith('training_gym.cli.runs.') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Go on from the newest checkpoint" in done.stdout
