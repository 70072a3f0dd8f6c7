"""What all charts are made of: scales, axes, marks, and an SVG with its text alternative.

Colours come from CSS classes, so that a chart follows the page into dark mode. Widths are few units, so that
letters are still letters on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from fedakd.plan import REFERENCE
from fedakd.report.table import Table

WIDTH = 420
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 44  # margins around the plotted area
DIGIT = 7.5  # about the width of one
HUES = 6  # colours beside the one of the reference
SHAPES = ("circle", "square", "diamond", "triangle")
MORE_SHAPES = (*SHAPES, "wedge", "plus")  # these two are small, and no good on a line
DASHES = ("", "6 3", "2 3")


@dataclass(frozen=True)
class Look:
    """How one method is drawn in every chart of a page."""

    hue: str  # a class of the style sheet
    dash: str
    shape: str


@dataclass(frozen=True)
class Key:
    """One entry of a legend."""

    number: int
    label: str
    look: Look


@dataclass(frozen=True)
class Chart:
    name: str  # unique on the page
    title: str
    svg: Markup
    numbers: Table | None = None
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` on the units from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """The reference in the colour of the text; the others told apart by hue, then by dashes too."""
    others = [one for one in dict.fromkeys(methods) if one != REFERENCE]
    found = {one: _look(place) for place, one in enumerate(others)}
    return {REFERENCE: Look("reference", DASHES[2], SHAPES[0]), **found}


def _look(place: int) -> Look:
    turn = place // HUES
    return Look(f"hue{place % HUES}", DASHES[turn % len(DASHES)], SHAPES[(place + turn) % len(SHAPES)])


def horizontal(values: Iterable[float], *, left: float = LEFT, floor: float | None = None) -> Scale:
    return Scale(*reach(values, floor), left, WIDTH - RIGHT)


def vertical(values: Iterable[float], height: float) -> Scale:
    return Scale(*reach(values), height - BOTTOM, TOP)


def beside(y: Scale) -> float:
    """Where the plotted area starts: right of the upright axis' name and the longest of its numbers."""
    longest = max((len(_number(place)) for place in ticks(y.low, y.high)), default=0)
    return max(LEFT, 24 + DIGIT * longest)


def reach(values: Iterable[float], floor: float | None = None) -> tuple[float, float]:
    """A little more than the range of the values that are known, never empty."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    return (low - room if floor is None else floor), high + room


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between both ends, their steps 1, 2, 2.5 or 5 times a power of ten.

    >>> ticks(0, 1), ticks(68.2, 91)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [70.0, 75.0, 80.0, 85.0, 90.0])
    """
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 12) + 0.0 for place in range(first, last + 1)]


def axes(x: Scale, y: Scale, x_label: str, y_label: str, whole: bool = False) -> Markup:
    """Grid, numbers and names of both axes; `whole`: only whole numbers below."""
    return Markup("").join([grid_y(y, x), grid_x(x, y, x_label, whole), _y_name(y, y_label)])


def grid_x(x: Scale, y: Scale, label: str, whole: bool = False) -> Markup:
    places = [one for one in _fitting(x) if not whole or one == int(one)]
    line = Markup('<path class="grid" d="M{} {}V{}"/><text class="tick mid" x="{}" y="{}">{}</text>')
    parts = [
        line.format(_u(x(p)), _u(y.start), _u(y.end), _u(x(p)), _u(y.start + 16), _number(p)) for p in places
    ]
    name = Markup('<text class="axis mid" x="{}" y="{}">{}</text>')
    return Markup("").join([*parts, name.format(_u((x.start + x.end) / 2), _u(y.start + 36), label)])


def _fitting(x: Scale) -> list[float]:
    """As many ticks as their numbers leave room for side by side."""
    for most in (6, 4, 3, 2):
        places = ticks(x.low, x.high, most)
        widest = DIGIT * max((len(_number(place)) for place in places), default=0) + 8
        if all(x(b) - x(a) >= widest for a, b in pairwise(places)):
            break
    return places


def grid_y(y: Scale, x: Scale) -> Markup:
    line = Markup('<path class="grid" d="M{} {}H{}"/><text class="tick end" x="{}" y="{}">{}</text>')
    places = ticks(y.low, y.high)
    return Markup("").join(
        line.format(_u(x.start), _u(y(p)), _u(x.end), _u(x.start - 6), _u(y(p) + 4), _number(p))
        for p in places
    )


def _y_name(y: Scale, label: str) -> Markup:
    middle = _u((y.start + y.end) / 2)
    return Markup('<text class="axis mid" transform="translate(12 {}) rotate(-90)">{}</text>').format(
        middle, label
    )


def mark(shape: str, x: float, y: float, kind: str, told: str = "", size: float = 4.5) -> Markup:
    """A point that tells its numbers when it is pointed at."""
    title = Markup("<title>{}</title>").format(told) if told else ""
    if shape == "circle":
        return Markup('<circle class="{}" cx="{}" cy="{}" r="{}">{}</circle>').format(
            kind, _u(x), _u(y), _u(size), title
        )
    ends = {
        "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        "diamond": ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)),
        "triangle": ((0, -1.3), (1.2, 0.9), (-1.2, 0.9)),
        "wedge": ((0, 1.3), (1.2, -0.9), (-1.2, -0.9)),
        "plus": PLUS,
    }[shape]
    corners = "L".join(f"{_u(x + size * a)} {_u(y + size * b)}" for a, b in ends)
    return Markup('<path class="{}" d="M{}Z">{}</path>').format(kind, corners, title)


_A, _B = 0.45, 1.3  # half the width of its arms, and their length
PLUS = (
    *((-_A, -_B), (_A, -_B), (_A, -_A), (_B, -_A), (_B, _A), (_A, _A)),
    *((_A, _B), (-_A, _B), (-_A, _A), (-_B, _A), (-_B, -_A), (-_A, -_A)),
)


def line(points: Sequence[tuple[float, float]], kind: str, dash: str = "") -> Markup:
    path = "L".join(f"{_u(x)} {_u(y)}" for x, y in points)
    dashes = Markup(' stroke-dasharray="{}"').format(dash) if dash else ""
    return Markup('<path class="{}" d="M{}"{}/>').format(kind, path, dashes)


def text(x: float, y: float, words: str, kind: str = "tick") -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(kind, _u(x), _u(y), words)


def picture(name: str, title: str, told: str, height: float, parts: Iterable[Markup]) -> Markup:
    """The SVG; `told` says in words what is seen, for those who do not see it."""
    opening = Markup(
        '<svg class="chart" role="img" viewBox="0 0 {} {}" aria-labelledby="{}-title {}-told">'
        '<title id="{}-title">{}</title><desc id="{}-told">{}</desc>'
    ).format(WIDTH, _u(height), name, name, name, title, name, told)
    return Markup("").join([opening, *parts, Markup("</svg>")])


def _u(units: float) -> str:
    """A tenth of a unit is finer than any screen."""
    return f"{round(units, 1) + 0.0:g}"


def _number(value: float) -> str:
    return f"{value:.10g}"
