import io
import json
import math
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_gym.cli import output
from training_gym.cli.escapes import one_line, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b2J", "\\x9b2J"),
        ("bell\x07 back\x08 cr\r", "bell\\x07 back\\x08 cr\\x0d"),
        ("turned \u202e around", "turned \\u202e around"),
        ("half \ud83d", "half \\ud83d"),
        ("tag \U000e0041", "tag \\U000e0041"),
        ("tab\tand\nline é 日本", "tab\tand\nline é 日本"),
    ],
)
def test_what_acts_on_a_terminal_is_written_out(text, shown):
    assert visible(text) == shown


@given(st.text())
def test_nothing_that_acts_on_a_terminal_is_left(text):
    left = visible(text)
    left.encode()
    assert not any(ord(char) < 32 and char not in "\n\t" for char in left)
    assert not any(0x7F <= ord(char) < 0xA0 for char in left)
    assert "\n" not in one_line(text)


def test_one_line_is_cut_to_its_width():
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("abcdef", 4) == "abc…"


def test_json_is_one_line_of_strict_ascii(capsys):
    output.emit("x/1", a=math.nan, b=[math.inf, -math.inf], c="é\x1b\n", d={"e": (1, 2)})
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert line.isascii()
    assert "\x1b" not in line
    assert json.loads(line) == {
        "schema": "x/1",
        "a": "NaN",
        "b": ["Infinity", "-Infinity"],
        "c": "é\x1b\n",
        "d": {"e": [1, 2]},
    }


def test_a_table_in_a_pipe_is_tab_separated_and_uncut(capsys):
    output.table(["a", "b"], [("x" * 300, None), ("two\twords\x1b", 0.123456)])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["a\tb", "x" * 300 + "\t–", "two words\\x1b\t0.123"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_table_on_a_terminal_is_aligned_and_shows_markup_as_text(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("NO_COLOR", "1")
    output.table(["name", "b"], [("[red]x[/red]", 1), ("y", 2)])
    first, second = screen.getvalue().splitlines()[1:]
    assert "[red]x[/red]" in first
    assert first.index("1") == second.index("2")


def test_no_color_is_respected_on_a_terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    output.console(screen).print("[x]", style="red")
    assert "\x1b[31m" not in screen.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (42.4, "42 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations_for_people(seconds, text):
    assert output.span(seconds) == text


def test_numbers_for_people():
    assert output.number(None) == "–"
    assert output.number(0.123456) == "0.123"
    assert output.number(7) == "7"
    assert output.number("NaN") == "NaN"


def test_a_dotted_path_finds_its_value():
    document = {"evals": [{"samples": 2}], "model": "m"}
    assert output.value_at(document, "evals.0.samples") == 2
    assert output.value_at(document, "model") == "m"
    assert output.value_at(document, "evals.7.samples") is None
    assert output.value_at(document, "model.x") is None


def test_what_takes_long_says_what_it_does(capsys):
    with output.patience("checking", after_s=0.0):
        deadline = time.monotonic() + 5
        while not (told := capsys.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.001)
    assert told == "checking\n"
    with output.patience("checking", after_s=60):
        pass
    assert capsys.readouterr().err == ""
    assert not [
        thread
        for thread in threading.enumerate()
        if isinstance(thread, threading.Timer) and not thread.finished.is_set()
    ]
