"""How this program is called, where commands are shown that somebody may paste."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "training-gym"


def program() -> str:
    """Its name where the shell finds it by that, else the path to it from here."""
    script = Path(sys.executable).with_name(NAME)
    found = shutil.which(NAME)
    if not script.exists() or (found is not None and os.path.samefile(found, script)):
        return NAME
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


def dashboard_command() -> str:
    """What opens the dashboard; in a checkout without a built web app, what builds it as well."""
    from importlib.resources import files

    if (files("training_gym.dashboard") / "app" / "index.html").is_file():
        return f"{program()} dashboard"
    return "make dashboard"
