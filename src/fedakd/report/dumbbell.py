"""The dumbbell chart: for each client its accuracy alone, after joining, and the way between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fedakd.fairness import ROUNDING
from fedakd.report.charts import BOTTOM, LEFT, WIDTH, Chart, Scale, grid_x, line, mark, picture, reach, text

STEP = 20  # from client to client
KEYS = 30  # room for the legend above
GAINS = 52  # room for the numbers at the right


@dataclass(frozen=True)
class Pair:
    """A client's accuracies as fractions."""

    client: int
    alone: float
    joined: float

    @property
    def gain(self) -> float:
        return self.joined - self.alone

    @property
    def loses(self) -> bool:
        return self.gain < -ROUNDING


def dumbbell(name: str, title: str, pairs: Sequence[Pair]) -> Chart:
    """Strongest alone first; a client without both accuracies stands last, without a line."""
    order = sorted(pairs, key=lambda one: (math.isnan(one.gain), -one.alone if one.gain == one.gain else 0.0))
    x = Scale(*reach([100 * end for one in pairs for end in (one.alone, one.joined)]), LEFT, WIDTH - GAINS)
    bottom = KEYS + STEP * len(order)
    grid = grid_x(x, Scale(0, 1, bottom, KEYS), "accuracy (points)")
    parts = [grid, _legend(), *(_line(one, x, KEYS + STEP * (at + 0.5)) for at, one in enumerate(order))]
    return Chart(name, title, picture(name, title, _told(title, order), bottom + BOTTOM, parts))


def _legend() -> Markup:
    entries = (
        ("alone", "circle", "hollow"),
        ("joined, gains", "circle", "up"),
        ("joined, loses", "square", "down"),
    )
    places = (LEFT + 16, LEFT + 82, LEFT + 190)
    parts = [
        mark(shape, at, 12, kind) + text(at + 9, 16, words)
        for at, (words, shape, kind) in zip(places, entries, strict=True)
    ]
    return Markup("").join(
        [text(LEFT - 8, 16, "client", "tick end"), *parts, text(WIDTH - 6, 16, "gain", "tick end")]
    )


def _line(one: Pair, x: Scale, middle: float) -> Markup:
    label = text(LEFT - 8, middle + 4, str(one.client), "tick end")
    if math.isnan(one.gain):
        return label + text(WIDTH - 6, middle + 4, "unknown", "tick end")
    start, end = x(100 * one.alone), x(100 * one.joined)
    kind, shape = ("down", "square") if one.loses else ("up", "circle")
    told = f"client {one.client}: alone {100 * one.alone:.1f}, joined {100 * one.joined:.1f}"
    parts = [
        line([(start, middle), (end, middle)], f"way {kind}"),
        mark("circle", start, middle, "hollow"),
        mark(shape, end, middle, kind),
    ]
    way = Markup("<g><title>{}</title>{}</g>").format(told, Markup("").join(parts))
    return label + way + text(WIDTH - 6, middle + 4, _points(one.gain), "tick end")


def _points(gain: float) -> str:
    """One digit, or the first that tells a small change from none.

    >>> _points(0.0312), _points(-0.0004), _points(0.0)
    ('+3.1', '-0.04', '0.0')
    """
    if abs(gain) <= ROUNDING:
        return "0.0"
    return f"{100 * gain:+.1f}" if abs(gain) >= 0.0005 else f"{100 * gain:+.1g}"


def _told(title: str, order: Sequence[Pair]) -> str:
    known = [one for one in order if not math.isnan(one.gain)]
    ends = "; ".join(
        f"client {one.client} from {100 * one.alone:.1f} to {100 * one.joined:.1f}" for one in known
    )
    worse = sum(one.loses for one in known)
    return f"{title}, means over seeds; {worse} of {len(known)} clients lose. {ends}."
