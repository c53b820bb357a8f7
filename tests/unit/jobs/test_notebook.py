"""Slicing the history of a session: which cells a name needs, and in which order."""

import sys

import pytest

from training_gym.jobs.notebook import module_source, read_cell
from training_gym.spec.errors import SourceError


def module_of(names: list[str], *sources: str) -> str:
    cells = [cell for source in sources if (cell := read_cell(source)) is not None]
    return module_source(cells, names)


def names_in(source: str) -> dict[str, object]:
    namespace: dict[str, object] = {"__name__": "notebook_cells"}
    exec(compile(source, "notebook_cells.py", "exec"), namespace)
    return namespace


def test_only_the_cells_that_are_needed_travel() -> None:
    source = module_of(
        ["reward"],
        "import re",
        "LIMIT = 3",
        "print('unrelated')",
        "def short(text): return len(re.findall('a', text)) < LIMIT",
        "def reward(episode): return short(episode)",
        "config = object()",
    )
    assert "unrelated" not in source
    assert "config" not in source
    assert names_in(source)["reward"]("aa") is True  # type: ignore[operator]
    assert names_in(source)["reward"]("aaaa") is False  # type: ignore[operator]


def test_the_newest_definition_wins() -> None:
    source = module_of(["f"], "def f(): return 1", "def f(): return undefined", "def f(): return 2")
    assert names_in(source)["f"]() == 2  # type: ignore[operator]
    assert "undefined" not in source


def test_a_name_used_at_once_means_what_it_meant_then() -> None:
    source = module_of(["f"], "x = 1", "def f(a=x): return a, x", "x = 2")
    assert names_in(source)["f"]() == (1, 2)  # type: ignore[operator]


def test_objects_changed_in_place_travel_with_their_changes() -> None:
    source = module_of(
        ["f"],
        "words = ['a']; table = {}; total = 1",
        "words.append('b')",
        "table['x'] = words",
        "total += 1",
        "def f(): return words, table, total",
    )
    assert names_in(source)["f"]() == (["a", "b"], {"x": ["a", "b"]}, 2)  # type: ignore[operator]


def test_calls_into_a_module_are_no_change_of_it() -> None:
    source = module_of(["f"], "import time", "time.sleep(60)", "def f(): return time.time()")
    assert "sleep" not in source


def test_classes_decorators_comprehensions_and_defaults_are_followed() -> None:
    source = module_of(
        ["Scorer"],
        "import dataclasses",
        "BASE = [1, 2]",
        "class Parent:\n    pass",
        "SIZES = {n: n for n in BASE}",
        "@dataclasses.dataclass\n"
        "class Scorer(Parent):\n"
        "    scale: int = SIZES[1]\n"
        "    def __call__(self, text): return [helper(c) for c in text]",
        "def helper(c): return c + SUFFIX",
        "SUFFIX = '!'",
    )
    scorer = names_in(source)["Scorer"]
    assert scorer(scale=2)("ab") == ["a!", "b!"]  # type: ignore[operator]


def test_names_bound_in_their_own_cell_need_no_other() -> None:
    source = module_of(["f"], "n = 1 / 0", "n = 5\nm = n + 1\ndef f(): return m")
    assert "1 / 0" not in source
    assert names_in(source)["f"]() == 6  # type: ignore[operator]


def test_magics_and_shell_lines_are_left_out() -> None:
    source = module_of(
        ["f"],
        "get_ipython().run_line_magic('matplotlib', 'inline')\n"
        "get_ipython().system('pip install x')\n"
        "LIMIT = 2\n"
        "display(LIMIT)\n"
        "def f(): return LIMIT",
    )
    assert "get_ipython" not in source
    assert "display" not in source
    assert names_in(source)["f"]() == 2  # type: ignore[operator]


def test_the_body_of_a_timed_cell_counts() -> None:
    source = module_of(
        ["f"], "get_ipython().run_cell_magic('time', '', 'def f():\\n    return 1\\n')"
    )
    assert names_in(source)["f"]() == 1  # type: ignore[operator]


def test_cells_that_are_not_python_are_passed_over() -> None:
    assert names_in(module_of(["f"], "this is not python", "def f(): return 1"))["f"]() == 1  # type: ignore[operator]


def test_future_imports_stand_first() -> None:
    source = module_of(
        ["f"], "x = 1", "from __future__ import annotations\ndef f(a: Unknown = None): return x"
    )
    assert source.startswith("from __future__ import annotations\n")
    assert names_in(source)["f"]() == 1  # type: ignore[operator]


def test_star_imports_travel() -> None:
    source = module_of(["f"], "from math import *", "def f(): return floor(1.5)")
    assert names_in(source)["f"]() == 1  # type: ignore[operator]


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("files = get_ipython().getoutput('ls')", "a magic or shell command"),
        ("files = await fetch()", "an await at the top level"),
    ],
)
def test_what_a_job_cannot_repeat_is_refused_by_name(cell: str, reason: str) -> None:
    with pytest.raises(SourceError) as refused:
        module_of(["reward"], cell, "def reward(episode): return files")
    assert "'files'" in refused.value.message
    assert reason in refused.value.message


def test_a_name_that_no_cell_made_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "injected", 1, raising=False)
    with pytest.raises(SourceError, match="'injected' used by 'reward' was made by no cell"):
        module_of(["reward"], "def reward(episode): return injected")


def test_what_exists_in_a_notebook_only_is_refused() -> None:
    with pytest.raises(SourceError, match="'display' used by 'reward' exists only in a notebook"):
        module_of(["reward"], "def reward(episode): display(episode)")
