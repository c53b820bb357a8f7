"""Pages whose Python runs as it stands; those of the agents' pages have a test of their own."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("checks", "engine", "health", "algorithms", "rewards")


def snippets():
    for page in PAGES:
        for number, text in enumerate(
            re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
        ):
            yield pytest.param(text, id=f"{page}-{number}")


@pytest.mark.parametrize("text", list(snippets()))
def test_a_snippet_runs(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "home"))
    exec(text, {"__name__": "snippet"})
