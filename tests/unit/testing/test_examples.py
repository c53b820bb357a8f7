"""Properties are tried on the same examples at every landing, whatever else was imported."""

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[3]


def drawn():
    found = []

    @given(st.integers(), st.text(), st.floats())
    def collect(number, text, fraction):
        found.append(repr((number, text, fraction)))

    collect()
    return found


@pytest.fixture
def another_module(monkeypatch, tmp_path):
    """One like those of the package, with numbers and words that nothing else has."""
    lines = [f"A{n} = ({10**9 + n}, {n}.4321, 'peculiar {n}')" for n in range(200)]
    path = tmp_path / "peculiar.py"
    path.write_text("\n".join(lines))

    def load():
        spec = importlib.util.spec_from_file_location("peculiar", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setitem(sys.modules, "peculiar", module)

    return load


@pytest.mark.skipif(not settings.default.derandomize, reason="fresh examples were asked for")
def test_the_same_examples_come_whatever_was_imported(another_module):
    before = drawn()
    another_module()
    assert drawn() == before
    assert len(set(before)) > 50


def test_no_test_takes_its_examples_out_of_the_common_settings():
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path != Path(__file__) and "hypothesis" in (text := path.read_text()):
            assert "derandomize=" not in text, path
            assert "deadline=" not in text, path
            assert "max_examples=settings.default" in text or "max_examples=" not in text, path
