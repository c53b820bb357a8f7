"""The list of finding codes in the documentation is the list of codes that there are."""

import re
from pathlib import Path

from training_gym import checks

KINDS = ("raised", "invalid", "died")
"""Kinds of judgement that become `reward.<kind>`."""


def test_every_code_is_documented_and_every_documented_code_exists() -> None:
    source = "".join(file.read_text() for file in Path(checks.__file__).parent.glob("*.py"))
    used = set(re.findall(r'"((?:[a-z]+)\.(?:[a-z_]+))"', source))
    used |= {f"reward.{kind}" for kind in KINDS} | {"model.tokenizer", "model.template_refuses"}
    used = {code for code in used if not code.startswith(("chat_template", "tokenizer_config"))}
    page = (Path(__file__).parents[3] / "docs" / "checks.md").read_text()
    documented = set(re.findall(r"^\| `([a-z]+\.[a-z_]+)`", page, re.MULTILINE))
    assert documented == used
