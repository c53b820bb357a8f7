"""Curves as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from training_gym.records.index import Series

WIDTH, HEIGHT, LEFT, BELOW = 320, 150, 44, 18


def curve(series: Series) -> str:
    """A figure with the curve, the band of its extremes, and the axes' ends in numbers."""
    points = [(x, y) for x, y in zip(series.x, series.mean, strict=True) if math.isfinite(y)]
    caption = f"<figcaption>{escape(series.name)}</figcaption>"
    if not points:
        return f"<figure>{caption}<p>nothing finite</p></figure>"
    lows = series.low or series.mean
    highs = series.high or series.mean
    bounds = [v for v in (*lows, *highs) if math.isfinite(v)]
    box = (points[0][0], points[-1][0], min(bounds), max(bounds))
    band = ""
    if series.low is not None and series.high is not None:
        both = [*zip(series.x, series.high, strict=True)]
        both += reversed([*zip(series.x, series.low, strict=True)])
        shown = [pair for pair in both if math.isfinite(pair[1])]
        band = f'<polygon points="{_path(shown, box)}" fill="currentColor" opacity=".15"/>'
    line = (
        f'<polyline points="{_path(points, box)}" fill="none" stroke="currentColor"'
        ' stroke-width="1.5"/>'
    )
    label = f"{series.name} from {points[0][1]:.4g} to {points[-1][1]:.4g}"
    return (
        f'<figure>{caption}<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(label, quote=True)}">{band}{line}{_ends(box)}</svg></figure>'
    )


def _path(points: Sequence[tuple[float, float]], box: tuple[float, float, float, float]) -> str:
    left, right, low, high = box
    wide, tall = (right - left) or 1.0, (high - low) or 1.0
    return " ".join(
        f"{LEFT + (x - left) / wide * (WIDTH - LEFT - 6):.1f},"
        f"{6 + (high - y) / tall * (HEIGHT - BELOW - 12):.1f}"
        for x, y in points
    )


def _ends(box: tuple[float, float, float, float]) -> str:
    left, right, low, high = box
    style = 'font-size="10" fill="currentColor" opacity=".7"'
    return (
        f'<text x="0" y="12" {style}>{high:.3g}</text>'
        f'<text x="0" y="{HEIGHT - BELOW - 2}" {style}>{low:.3g}</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 2}" {style}>{left:.4g}</text>'
        f'<text x="{WIDTH - 6}" y="{HEIGHT - 2}" text-anchor="end" {style}>{right:.4g}</text>'
    )
