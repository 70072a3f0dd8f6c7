"""The scatter chart: one point for each client and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from fedakd.report.charts import (
    BOTTOM,
    TOP,
    WIDTH,
    Chart,
    Scale,
    axes,
    horizontal,
    line,
    mark,
    picture,
    reach,
    text,
)

HEIGHT = 330
Rest = Literal["diagonal", "level", None]  # y = x, or y = 0
STRIP = 18  # above the points, for the correlation


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    loses: bool
    told: str


def scatter(
    name: str,
    title: str,
    points: Sequence[Point],
    x_label: str,
    y_label: str,
    remark: str,
    rest: Rest = None,
) -> Chart | None:
    """With a line where joining changes nothing, if the axes have one; nothing without points."""
    if not points:
        return None
    x = horizontal([one.x for one in points])
    y = Scale(*reach([one.y for one in points]), HEIGHT - BOTTOM, TOP + STRIP)
    dots = [
        mark("square" if one.loses else "circle", x(one.x), y(one.y), "down" if one.loses else "up", one.told)
        for one in points
    ]
    parts = [
        axes(x, y, x_label, y_label),
        _rest(x, y, rest),
        *dots,
        text(WIDTH - 12, TOP + 4, remark, "remark end"),
    ]
    told = (
        f"{title}. {len(points)} points, one for each client and seed; {x_label} against {y_label}; {remark}."
    )
    return Chart(name, title, picture(name, title, told, HEIGHT, parts))


def _rest(x: Scale, y: Scale, rest: Rest) -> Markup:
    if rest == "diagonal":
        low, high = max(x.low, y.low), min(x.high, y.high)
        return line([(x(low), y(low)), (x(high), y(high))], "zero") if low < high else Markup("")
    inside = rest == "level" and y.low <= 0 <= y.high
    return line([(x.start, y(0)), (x.end, y(0))], "zero") if inside else Markup("")
