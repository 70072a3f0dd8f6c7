"""Charts with one line for each method: gains and CF with their intervals, and what a round costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from markupsafe import Markup

from fedakd.compare.results import Setting
from fedakd.fairness import Spread
from fedakd.plan import is_reference
from fedakd.report.charts import (
    BOTTOM,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Look,
    Scale,
    grid_x,
    line,
    mark,
    picture,
    reach,
    text,
)
from fedakd.report.table import Entry, Table, number
from fedakd.report.tables import gain
from fedakd.summary import Row, named
from fedakd.tables import costs

STEP = 24  # from method to method, if its name takes one line
LINE = 13  # from line to line of a name
LETTER = 6.6  # about the width of one
LONGEST = 24  # letters of a line of a name


@dataclass(frozen=True)
class Bar:
    """One line: a value, and the ends of its interval where it has one."""

    label: str
    look: Look
    value: float
    low: float = math.nan
    high: float = math.nan


def gains(setting: Setting, drawn: Mapping[str, Look], name: str) -> list[Chart]:
    """Mean gain and CF of the model each method is judged by."""
    others = [row for row in setting.rows if row.judged and not is_reference(row.method)]
    if not others:
        return []
    pay = [Bar(row.label, drawn[row.method], *(100 * one for one in gain(row))) for row in others]
    keep = [Bar(row.label, drawn[row.method], *_order(row.spread)) for row in others]
    return [
        intervals(f"{name}-gains", _gain_title(others), "points gained by joining", pay),
        intervals(f"{name}-cf", _order_title(others), "CF (100: order kept, 0: order lost)", keep),
    ]


def _gain_title(rows: Sequence[Row]) -> str:
    of = "over seeds" if max(len(row.seeds) for row in rows) > 1 else "of this one draw of test rows"
    return f"Mean gain over these clients, with its 95 % interval {of}"


def _order_title(rows: Sequence[Row]) -> str:
    """Seeds have an interval over their clients each; there is none of the mean."""
    if max(len(row.seeds) for row in rows) == 1:
        return "CF, with its 95 % interval"
    return "CF, mean over seeds; line: 95 % interval of a single seed, averaged over seeds"


def _order(spreads: dict[str, Spread]) -> tuple[float, float, float]:
    return spreads["cf"].mean, spreads["cf_low"].mean, spreads["cf_high"].mean


def intervals(name: str, title: str, label: str, bars: Sequence[Bar]) -> Chart:
    x = Scale(*reach([0.0, *(end for bar in bars for end in (bar.value, bar.low, bar.high))]), *_room(bars))
    parts = [_frame(x, bars, label), *(_interval(bar, x, at) for bar, at in _places(bars))]
    told = f"{title}. " + "; ".join(_told(bar) for bar in bars)
    rows = tuple((Entry(bar.label), *map(number, (bar.value, bar.low, bar.high))) for bar in bars)
    numbers = Table(f"{name}-numbers", title, ("method", "value", "from", "to"), rows)
    return Chart(name, title, picture(name, title, told, _bottom(bars) + BOTTOM, parts), numbers)


def cost(setting: Setting, drawn: Mapping[str, Look], name: str) -> list[Chart]:
    found = costs(setting.cells)
    shown = {
        "seconds": ("Time of a round", "seconds"),
        "passes": ("Passes over the training rows in a round", "passes"),
        "megabytes_up": ("What clients send in a round", "MB"),
        "megabytes_down": ("What clients receive in a round", "MB"),
    }
    return [
        lengths(
            f"{name}-{key}",
            title,
            unit,
            [Bar(named(one), drawn[one], _known(own[key])) for one, own in found.items()],
        )
        for key, (title, unit) in shown.items()
    ]


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def lengths(name: str, title: str, unit: str, bars: Sequence[Bar]) -> Chart:
    known = [bar.value for bar in bars if not math.isnan(bar.value)]
    x = Scale(0.0, max(known, default=0.0) * 1.15 or 1.0, *_room(bars))
    parts = [_frame(x, bars, unit), *(_length(bar, x, at) for bar, at in _places(bars))]
    told = f"{title}. " + "; ".join(f"{bar.label}: {_amount(bar)} {unit}" for bar in bars)
    rows = tuple((Entry(bar.label), number(bar.value, 4)) for bar in bars)
    numbers = Table(f"{name}-numbers", title, ("method", unit), rows)
    return Chart(name, title, picture(name, title, told, _bottom(bars) + BOTTOM, parts), numbers)


def _lines(bar: Bar) -> list[str]:
    """A name is never cut: two could become one."""
    return wrap(bar.label, LONGEST)


def _step(bars: Sequence[Bar]) -> float:
    return STEP + LINE * max((len(_lines(bar)) - 1 for bar in bars), default=0)


def _bottom(bars: Sequence[Bar]) -> float:
    return TOP + _step(bars) * len(bars)


def _places(bars: Sequence[Bar]) -> list[tuple[Bar, float]]:
    """Each with the height of its middle."""
    return [(bar, TOP + _step(bars) * (at + 0.5)) for at, bar in enumerate(bars)]


def _room(bars: Sequence[Bar]) -> tuple[float, float]:
    """From where to where values are drawn: beside the longest name."""
    longest = max((len(own) for bar in bars for own in _lines(bar)), default=0)
    return 14 + LETTER * longest, WIDTH - RIGHT


def _frame(x: Scale, bars: Sequence[Bar], label: str) -> Markup:
    y = Scale(0, 1, _bottom(bars), TOP)
    zero = line([(x(0), y.start), (x(0), y.end)], "zero") if x.low <= 0 <= x.high else Markup("")
    return grid_x(x, y, label) + zero


def _name(bar: Bar, x: Scale, middle: float) -> Markup:
    own = _lines(bar)
    first = middle + 4 - LINE * (len(own) - 1) / 2
    return Markup("").join(
        text(x.start - 8, first + LINE * at, words, "tick end") for at, words in enumerate(own)
    )


def _interval(bar: Bar, x: Scale, middle: float) -> Markup:
    parts = [_name(bar, x, middle)]
    if not math.isnan(bar.low):
        parts.append(line([(x(bar.low), middle), (x(bar.high), middle)], "whisker"))
    if not math.isnan(bar.value):
        parts.append(mark(bar.look.shape, x(bar.value), middle, "dot", _told(bar)))
    return Markup('<g class="{}">{}</g>').format(bar.look.hue, Markup("").join(parts))


def _length(bar: Bar, x: Scale, middle: float) -> Markup:
    if math.isnan(bar.value):
        return _name(bar, x, middle) + text(x(0) + 4, middle + 4, _amount(bar))
    box = Markup('<rect class="bar {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="12"/>').format(
        bar.look.hue, x(0), middle - 6, max(x(bar.value) - x(0), 0)
    )
    return _name(bar, x, middle) + box + text(x(bar.value) + 4, middle + 4, _amount(bar))


def _amount(bar: Bar) -> str:
    return "unknown" if math.isnan(bar.value) else f"{bar.value:.3g}"


def _told(bar: Bar) -> str:
    if math.isnan(bar.value):
        return f"{bar.label}: undefined"
    ends = "no interval" if math.isnan(bar.low) else f"{bar.low:.1f} to {bar.high:.1f}"
    return f"{bar.label}: {bar.value:.1f} ({ends})"
