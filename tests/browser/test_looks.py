"""Every page in both themes at both widths: it fits, asks nobody else, and axe has no complaint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
GOOD, SICK = "/runs/demo-healthy", "/runs/demo-zero-variance"
PAGES = {
    "runs": "/runs",
    "overview": f"{SICK}/overview",
    "compare": "/compare?runs=demo-healthy,demo-zero-variance,demo-mismatch&smooth=0.6",
    "groups": f"{GOOD}/trajectories?step=12",
    "episodes": f"{GOOD}/trajectories?tab=episodes&reward=0.5..",
    "discarded": f"{SICK}/trajectories?tab=discarded",
    "sample": f"{GOOD}/trajectories?episode={{episode}}",
    "tokens": f"{GOOD}/trajectories?episode={{episode}}&view=tokens&heat=entropy",
    "group": f"{GOOD}/trajectories?group={{group}}",
    "timeline": f"{GOOD}/timeline?first=10&last=14",
    "alerts": f"{SICK}/alerts?alert={{alert}}",
    "evaluations": f"{GOOD}/evaluations",
    "logs": f"{GOOD}/logs?repeats=1",
    "configuration": f"{GOOD}/configuration?against=demo-mismatch",
}
SERIOUS = ("serious", "critical")


def filled(page: Any, path: str) -> str:
    """The path with ids of what is there."""
    ask = "path => fetch(path).then(answer => answer.json())"
    row = page.evaluate(ask, "/api/v1/runs/demo-healthy/episodes?stream=train&step=12..12&limit=1")
    alerts = page.evaluate(ask, "/api/v1/runs/demo-zero-variance/alerts")["alerts"]
    episode = row["episodes"][0]
    return path.format(
        episode=episode["id"], group=episode["group"], alert=alerts[0]["id"] if alerts else ""
    )


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_right(dashboard: Any, visit: Any, name: str, theme: str, width: int) -> None:
    seen = visit(dashboard, color_scheme=theme, viewport={"width": width, "height": 900})
    seen.open(dashboard.address(filled(seen.page, PAGES[name])))
    folder = os.environ.get("TRAINING_GYM_SCREENSHOTS")
    if folder:
        path = Path(folder) / f"{name}-{theme}-{width}.png"
        seen.page.screenshot(path=path, full_page=True)
    assert seen.problems == []
    assert all(url.startswith(dashboard.address("/")) for url in seen.requests)
    overflow = "document.documentElement.scrollWidth - innerWidth"
    assert seen.page.evaluate(overflow) <= 0, "the page scrolls sideways"
    assert complaints(seen.page) == []


def complaints(page: Any) -> list[str]:
    """What axe finds that is serious."""
    if not AXE.exists():
        pytest.skip("axe-core is not here: make web")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{violation['id']}: {node['html'][:160]}"
        for violation in found["violations"]
        if violation["impact"] in SERIOUS
        for node in violation["nodes"][:3]
    ]
