"""What `make` installs is pinned whole, so that every landing is tested with the same packages."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def name_of(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def wanted(extras: dict[str, list[str]], extra: str) -> set[str]:
    names = set()
    for requirement in extras[extra]:
        if name_of(requirement) == "training-gym":
            inner = requirement.partition("[")[2].rstrip("]").split(",")
            names |= {name for each in inner for name in wanted(extras, each)}
        else:
            names.add(name_of(requirement))
    return names


def test_everything_that_is_asked_for_has_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = {name_of(each) for each in project["dependencies"]}
    asked |= wanted(extras, "all") | wanted(extras, "dev")
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {name_of(line) for line in lines if "==" in line}
    assert asked <= pinned, asked - pinned
