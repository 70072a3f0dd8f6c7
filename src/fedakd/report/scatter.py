"""The scatter chart: one point for each client and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from fedakd.report.charts import (
    BOTTOM,
    LEFT,
    MORE_SHAPES,
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

HEIGHT = 346
Rest = Literal["diagonal", "level", None]  # y = x, or y = 0
LINE = 16  # of the text above the points


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    seed: int
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
    """With a line where joining changes nothing, if the axes have one; nothing without points.

    The lines of the remark stand above the points, below the legend.
    """
    if not points:
        return None
    x = horizontal([one.x for one in points])
    above = remark.splitlines()
    y = Scale(*reach([one.y for one in points]), HEIGHT - BOTTOM, TOP + LINE * (len(above) + 1))
    shapes = shapes_of(points)
    dots = [mark(shapes[one.seed], x(one.x), y(one.y), _kind(one.loses), one.told) for one in points]
    remarks = [text(WIDTH - 12, TOP + LINE * at + 4, own, "remark end") for at, own in enumerate(above, 1)]
    parts = [axes(x, y, x_label, y_label), _rest(x, y, rest), *dots, _legend(shapes), *remarks]
    seen = f"{len(points)} points, one for each client and seed; {x_label} against {y_label}"
    told = f"{title}. {seen}; {'; '.join(above)}."
    return Chart(name, title, picture(name, title, told, HEIGHT, parts))


def shapes_of(points: Sequence[Point]) -> dict[int, str]:
    """One a seed; where there are more seeds than shapes all look alike, and each point tells its seed."""
    seeds = sorted({one.seed for one in points})
    shapes = MORE_SHAPES if len(seeds) <= len(MORE_SHAPES) else MORE_SHAPES[:1] * len(seeds)
    return dict(zip(seeds, shapes, strict=False))


def _kind(loses: bool) -> str:
    return "lost" if loses else "up"


def _legend(shapes: dict[int, str]) -> Markup:
    """Filled or not: what came of joining; shapes: seeds, if they tell them apart."""
    parts = [
        *(mark("circle", LEFT + 6, TOP, _kind(False)), text(LEFT + 14, TOP + 4, "gains")),
        *(mark("circle", LEFT + 60, TOP, _kind(True)), text(LEFT + 68, TOP + 4, "loses")),
    ]
    if 1 < len(shapes) == len(set(shapes.values())):
        parts.append(text(LEFT + 118, TOP + 4, "seed"))
        for at, (seed, shape) in enumerate(shapes.items()):
            place = LEFT + 156 + 34 * at
            parts += [mark(shape, place, TOP, "plain"), text(place + 8, TOP + 4, str(seed))]
    return Markup("").join(parts)


def _rest(x: Scale, y: Scale, rest: Rest) -> Markup:
    if rest == "diagonal":
        low, high = max(x.low, y.low), min(x.high, y.high)
        return line([(x(low), y(low)), (x(high), y(high))], "zero") if low < high else Markup("")
    inside = rest == "level" and y.low <= 0 <= y.high
    return line([(x.start, y(0)), (x.end, y(0))], "zero") if inside else Markup("")
