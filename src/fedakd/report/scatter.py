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
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Scale,
    axes,
    beside,
    line,
    mark,
    picture,
    reach,
    text,
)

HEIGHT = 314  # without the text above the points
Rest = Literal["diagonal", "level", None]  # y = x, or y = 0
LINE = 16  # of the text above the points
UNCHANGED = "joining changes nothing"


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
) -> Chart:
    """With a line where joining changes nothing, if the axes have one in sight.

    Above the points stand the legend, then the name of that line, then the lines of the remark.
    """
    across, up = reach(one.x for one in points), reach(one.y for one in points)
    ends, remarks = _rest(across, up, rest), remark.splitlines()
    above = LINE * (len(remarks) + bool(ends))
    y = Scale(*up, HEIGHT + above - BOTTOM, TOP + LINE + above)
    x = Scale(*across, beside(y), WIDTH - RIGHT)
    frame = [axes(x, y, x_label, y_label), _dashed([(x(a), y(b)) for a, b in ends])]
    parts = [*frame, *_dots(points, x, y), _legend(shapes_of(points)), *_remarks(remarks, bool(ends))]
    seen = f"{len(points)} points, one for each client and seed; {x_label} against {y_label}"
    dashed = f", dashed where {UNCHANGED}" if ends else ""
    told = f"{title}. {seen}{dashed}; {'; '.join(remarks)}."
    return Chart(name, title, picture(name, title, told, HEIGHT + above, parts))


def shapes_of(points: Sequence[Point]) -> dict[int, str]:
    """One a seed; where there are more seeds than shapes all look alike, and each point tells its seed."""
    seeds = sorted({one.seed for one in points})
    shapes = MORE_SHAPES if len(seeds) <= len(MORE_SHAPES) else MORE_SHAPES[:1] * len(seeds)
    return dict(zip(seeds, shapes, strict=False))


def _dots(points: Sequence[Point], x: Scale, y: Scale) -> list[Markup]:
    shapes = shapes_of(points)
    return [mark(shapes[one.seed], x(one.x), y(one.y), _kind(one.loses), one.told) for one in points]


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


def _remarks(lines: Sequence[str], below_key: bool) -> list[Markup]:
    first = TOP + LINE * (1 + below_key) + 4
    return [text(WIDTH - RIGHT, first + LINE * at, own, "remark end") for at, own in enumerate(lines)]


def _rest(across: tuple[float, float], up: tuple[float, float], rest: Rest) -> list[tuple[float, float]]:
    """Both ends of the line where joining changes nothing, or none where it is out of sight."""
    if rest == "diagonal":
        low, high = max(across[0], up[0]), min(across[1], up[1])
        return [(low, low), (high, high)] if low < high else []
    inside = rest == "level" and up[0] <= 0 <= up[1]
    return [(across[0], 0.0), (across[1], 0.0)] if inside else []


def _dashed(ends: Sequence[tuple[float, float]]) -> Markup:
    """The line, and its name below the legend."""
    if not ends:
        return Markup("")
    level = TOP + LINE
    sample = line([(LEFT, level), (LEFT + 22, level)], "zero")
    return line(ends, "zero") + sample + text(LEFT + 28, level + 4, UNCHANGED)
