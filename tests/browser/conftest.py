"""A real dashboard over demo runs, and Debian's Chromium looking at it.

Needs `apt-get install chromium`, the package `playwright` (no browser of its own) and a built app
(`make web`). Screenshots go to `$TRAINING_GYM_SCREENSHOTS`, if it is set.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from training_gym.dashboard.assets import APP
from training_gym.records.demo import DemoShape, write_demo_run

ROOT = Path(__file__).parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
KINDS = ("healthy", "zero_variance", "hostile", "resumed", "mismatch")


@dataclass
class Dashboard:
    """A server process."""

    home: Path
    port: int = 0
    arguments: tuple[str, ...] = ()
    process: subprocess.Popen[str] | None = field(default=None, repr=False)
    url: str = ""
    viewer_url: str = ""

    def start(self) -> Dashboard:
        """Start it, at the same port as before."""
        command = [sys.executable, "-m", "training_gym.cli", "dashboard", "--json", "--no-browser"]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port), *self.arguments],
            env={**os.environ, "TRAINING_GYM_HOME": str(self.home)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.url, self.viewer_url = said["url"], said["viewer_url"]
        self.port = int(self.url.split(":")[2].split("/")[0])
        return self

    def kill(self) -> None:
        """End it as a crash would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def address(self, path: str) -> str:
        """Of a page."""
        return f"http://127.0.0.1:{self.port}{path}"


@pytest.fixture(scope="session")
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("browser-home")
    for kind in KINDS:
        shape = DemoShape(
            kind=kind, steps=24, groups=3, group_size=6, evaluate_every=8, evaluation_tasks=12
        )
        write_demo_run(home / "runs", shape, run_id=f"demo-{kind.replace('_', '-')}")
    return home


@pytest.fixture(scope="session")
def dashboard(demo_home: Path) -> Iterator[Dashboard]:
    if not (APP / "index.html").exists():
        pytest.skip("the web app is not built: make web")
    server = Dashboard(demo_home).start()
    yield server
    server.kill()


@pytest.fixture
def own_dashboard(demo_home: Path, tmp_path: Path) -> Iterator[Callable[..., Dashboard]]:
    """Over a copy of the runs, for tests that write, kill or restart."""
    shutil.copytree(demo_home / "runs", tmp_path / "home" / "runs")
    started: list[Dashboard] = []

    def start(*arguments: str) -> Dashboard:
        started.append(Dashboard(tmp_path / "home", arguments=arguments).start())
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is not here: apt-get install chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page, and everything that went wrong on it."""

    page: Any
    problems: list[str]
    requests: list[str]

    def open(self, address: str) -> None:
        """Go there and wait until everything asked for has come."""
        self.page.goto(address)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is being read."""
        self.page.wait_for_selector("main")
        self.until("!/Reading|^$/.test(document.querySelector('main').innerText)")
        self.page.wait_for_timeout(250)

    def until(self, condition: str, timeout_ms: int = 30_000) -> None:
        """Wait for a JavaScript expression; the page's own policy forbids it to evaluate text."""
        for _ in range(timeout_ms // 50):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"still not: {condition}")


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Visit]]:
    contexts: list[Any] = []

    def begin(server: Dashboard, *, url: str | None = None, **options: Any) -> Visit:
        settings = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
        context = chromium.new_context(**{**settings, **options})
        contexts.append(context)
        page = context.new_page()
        found = Visit(page, [], [])
        page.on("console", lambda m: m.type == "error" and found.problems.append(m.text))
        page.on("pageerror", lambda error: found.problems.append(str(error)))
        page.on("dialog", lambda dialog: (found.problems.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: found.requests.append(request.url))
        page.goto(server.url if url is None else url)
        page.wait_for_selector("main")
        return found

    yield begin
    for context in contexts:
        context.close()
