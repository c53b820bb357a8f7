"""The snippets of the pages on tasks, rewards and graders run as they stand."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("tasks.md", ["3 rows, 1 duplicates", "What is 17 * 3? Answer in \\boxed{}. 51"]),
        ("rewards.md", ["1.25 {'correct': 1.0, 'brief': 1.0}"]),
        ("graders.md", ["1.0 0.0 {'early_exit'}"]),
        ("harbor.md", []),
    ],
)
def test_snippets_run(page, printed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, page, "exec"), {"__name__": "snippet"})
    assert capsys.readouterr().out.splitlines() == printed
