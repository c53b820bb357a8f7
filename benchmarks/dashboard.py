"""How soon the dashboard shows a large run in the browser, against TensorBoard and trackio.

Each serves the same run of STEPS × METRICS points; each round opens a fresh browser context at the
page of its charts and waits until as many charts are drawn as the screen holds. Rounds are
interleaved; medians and their ratio to ours are reported. A peer that is not installed is left out.

    python benchmarks/dashboard.py [--steps 10000] [--metrics 100] [--rounds 5] [--json]

Needs a built app (make web), Chromium and playwright; `pip install tensorboard trackio` for peers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHARTS = 8
"""What the first screen of each holds, about."""
PATIENCE_S = 120.0


@dataclass
class Peer:
    """A server that shows the run, and how to see that it does."""

    name: str
    process: subprocess.Popen[bytes]
    enter: str
    """Address to open once, before the clock runs."""
    url: str
    drawn: str
    """JavaScript: how many charts are drawn."""


def value(metric: int, step: int) -> float:
    """The same curve for all."""
    return math.sin(step / (50 + metric)) + metric + (step * 2654435761 % 1000) / 5000


def ours(folder: Path, steps: int, metrics: int) -> Peer:
    """The overview of a run with its eight charts."""
    from training_gym.records.demo import DemoShape, write_demo_run
    from training_gym.records.health import record_alerts

    home = folder / "gym"
    shape = DemoShape(steps=steps, metrics=metrics, groups=0, evaluate_every=0)
    record_alerts(write_demo_run(home / "runs", shape, run_id="large"))
    command = [sys.executable, "-m", "training_gym.cli", "dashboard", "--json", "--port", "0"]
    environment = {**os.environ, "TRAINING_GYM_HOME": str(home)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    base = url.split("/?")[0]
    drawn = "document.querySelectorAll('figure .u-over').length"
    return Peer("training-gym", process, url, f"{base}/runs/large/overview", drawn)


def tensorboard(folder: Path, steps: int, metrics: int) -> Peer:
    """Its time-series page, which draws the cards in view."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder / "tb" / "large"))
    for step in range(steps):
        values = [
            Summary.Value(tag=f"metric/{m}", simple_value=value(m, step)) for m in range(metrics)
        ]
        writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=values)))
    writer.close()
    port = 16006
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder / "tb"),
               "--port", str(port), "--host", "127.0.0.1"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/"
    parts = "scalar-card line-chart canvas, line-chart svg path"
    drawn = f"document.querySelectorAll('{parts}').length"
    return Peer("tensorboard", process, url, url + "#timeseries", drawn)


def open_page(browser: Any, peer: Peer) -> float:
    """Seconds from going to the page until the charts are drawn."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(peer.enter)
    page.goto("about:blank")
    began = time.monotonic()
    page.goto(peer.url)
    while page.evaluate(peer.drawn) < CHARTS - 2:  # a chart may have nothing to show
        if time.monotonic() - began > PATIENCE_S:
            raise SystemExit(f"{peer.name} drew {page.evaluate(peer.drawn)} charts only")
        page.wait_for_timeout(10)
    seconds = time.monotonic() - began
    context.close()
    return seconds


def wait_until_served(peer: Peer, browser: Any) -> float:
    """Seconds until it shows the run for the first time: indexing, loading."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_S:
        try:
            open_page(browser, peer)
            return time.monotonic() - began
        except Exception:  # noqa: BLE001 - whatever a server that is not up yet makes a browser say
            time.sleep(0.5)
    raise SystemExit(f"{peer.name} does not answer")


def measure(makers: list[Callable[..., Peer]], steps: int, metrics: int, rounds: int) -> Any:
    """Medians in seconds by name, and the first opening."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        peers = [make(Path(folder), steps, metrics) for make in makers]
        try:
            first = {peer.name: wait_until_served(peer, browser) for peer in peers}
            times: dict[str, list[float]] = {peer.name: [] for peer in peers}
            for _ in range(rounds):
                for peer in peers:
                    times[peer.name].append(open_page(browser, peer))
        finally:
            for peer in peers:
                peer.process.kill()
                peer.process.wait()
            browser.close()
    return first, {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--metrics", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    makers: list[Callable[..., Peer]] = [ours]
    if importlib.util.find_spec("tensorboard"):
        makers.append(tensorboard)
    first, again = measure(makers, asked.steps, asked.metrics, asked.rounds)
    base = again["training-gym"]
    if asked.json:
        print(
            json.dumps({"first_s": first, "median_s": again, "points": asked.steps * asked.metrics})
        )
        return
    print(f"{asked.steps} steps × {asked.metrics} metrics, charts drawn in the browser")
    for name, seconds in again.items():
        print(f"{name:<14} {seconds:6.2f} s  {seconds / base:5.1f} ×   first {first[name]:6.1f} s")


if __name__ == "__main__":
    main()
