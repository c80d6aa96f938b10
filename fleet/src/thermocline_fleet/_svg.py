"""Small pictures of the page, as inline SVG. Colours come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from ._text import age, share

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 320, 150
LEFT, RIGHT, TOP, BOTTOM = 40, 8, 10, 22
TICKS = (10, 60, 600, 3600, 21600, 86400)


def bar(parts: Sequence[tuple[str, float, str]], label: str) -> str:
    """A bar of shares of a whole: name, share and class of each part."""
    x, boxes = 0.0, []
    for name, part, style in parts:
        width = max(0.0, min(part, 1.0)) * 200
        title = f"<title>{escape(name)}: {share(part)}</title>"
        boxes.append(
            f'<rect class="{style}" x="{x:.2f}" y="0" width="{width:.2f}" height="14">{title}</rect>'
        )
        x += width
    return _svg("bar", 200, 14, label, boxes)


def curve(points: Points, marked: float | None, label: str) -> str:
    """A share by age, on a logarithmic axis of ages. `marked`: the advised age."""
    shown = [(at, value) for at, value in points if at >= TICKS[0]]
    top = max((value for _, value in shown), default=0.0)
    # Round up to a tenth, so that classes can be compared.
    top = max(0.1, math.ceil(top * 10) / 10)
    path = " ".join(f"{_x(at):.1f},{_y(value / top):.1f}" for at, value in shown)
    parts = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_y(part):.1f}" y2="{_y(part):.1f}"/>'
        f'<text class="tick" x="{LEFT - 5}" y="{_y(part) + 3:.1f}" text-anchor="end">{top * part:.0%}</text>'
        for part in (0.0, 0.5, 1.0)
    ]
    parts += [
        f'<text class="tick" x="{_x(tick):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{age(tick)}</text>'
        for tick in TICKS
    ]
    if marked is not None:
        parts.append(
            f'<line class="mark" x1="{_x(marked):.1f}" x2="{_x(marked):.1f}" y1="{TOP}" y2="{_y(0):.1f}"/>'
        )
    parts.append(f'<polyline class="line" points="{path}"/>')
    parts += [
        f'<circle class="dot" cx="{_x(at):.1f}" cy="{_y(value / top):.1f}" r="2.5">'
        f"<title>idle for {age(at)} or longer: {share(value)}</title></circle>"
        for at, value in shown
    ]
    return _svg("curve", WIDTH, HEIGHT, label, parts)


def _svg(style: str, width: int, height: int, label: str, parts: Sequence[str]) -> str:
    head = f'<svg class="{style}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
    return head + "".join(parts) + "</svg>"


def _x(seconds: float) -> float:
    first, last = math.log(TICKS[0]), math.log(TICKS[-1])
    return LEFT + (math.log(seconds) - first) / (last - first) * (WIDTH - LEFT - RIGHT - 12)


def _y(part: float) -> float:
    return TOP + (1 - part) * (HEIGHT - TOP - BOTTOM)
