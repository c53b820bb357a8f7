"""The snippets of the page on sandboxes run as they stand, and its tables name what there is."""

import re
from pathlib import Path

from training_gym.cli.entry import run
from training_gym.sandboxes.registry import names

PAGE = (Path(__file__).parents[3] / "docs" / "sandboxes.md").read_text()


def test_snippets_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path))
    for snippet in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(snippet, "sandboxes.md", "exec"), {"__name__": "snippet"})
    assert capsys.readouterr().out.splitlines() == ["5 0", "ran 0"]


def test_the_shown_answer_is_the_commands(capsys):
    shown = re.search(r"```\n\$ training-gym (sandbox size .*?)\n(.*?)```", PAGE, re.DOTALL)
    assert run(shown[1].split()) == 0
    assert capsys.readouterr().out == shown[2]


def test_every_provider_is_described():
    assert not [name for name in names() if f"`{name}`" not in PAGE]
