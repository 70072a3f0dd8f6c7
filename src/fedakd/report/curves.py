"""Curves over rounds: how accurate clients are on average, and how well their order is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from fedakd.compare.results import Setting
from fedakd.experiment import Cell
from fedakd.fairness import cf_coefficient
from fedakd.plan import REFERENCE
from fedakd.report.charts import (
    Chart,
    Key,
    Look,
    Scale,
    axes,
    beside,
    horizontal,
    line,
    mark,
    picture,
    vertical,
)
from fedakd.report.table import Entry, Table, number
from fedakd.report.tables import mean_of
from fedakd.summary import Row, accuracies

HEIGHT = 300
FEW = 30  # points of a curve that can be marked one by one
Curve = dict[int, float]  # round -> value
Measure = Callable[[Cell, str, list[float]], Curve]


def charts(setting: Setting, drawn: Mapping[str, Look], name: str) -> list[Chart]:
    averages, orders = curves_of(setting, _averages), curves_of(setting, _orders)
    orders.pop(_reference(setting).label)  # with itself it is 100 in the end, whatever happens before
    keys = {row.label: drawn[row.method] for row in setting.rows if row.judged}
    told = "Average client accuracy (points)"
    found = [chart(f"{name}-accuracy-curve", "Average client accuracy per round", told, averages, keys)]
    if any(orders.values()):
        title = "CF per round, against the final Standalone"
        found.append(chart(f"{name}-cf-curve", title, "CF", orders, keys))
    return found


def curves_of(setting: Setting, measure: Measure) -> dict[str, Curve]:
    """Label -> round -> the mean over seeds, of the model each method is judged by."""
    alone = dict(zip(_reference(setting).seeds, _reference(setting).accuracies, strict=True))
    return {
        row.label: _mean([measure(cell, row.view, alone[cell.seed]) for cell in _cells(setting, row)])
        for row in setting.rows
        if row.judged
    }


def _cells(setting: Setting, row: Row) -> list[Cell]:
    return [cell for cell in setting.cells if cell.method == row.method and cell.seed in row.seeds]


def _reference(setting: Setting) -> Row:
    return next(row for row in setting.rows if row.method == REFERENCE)


def _judged(cell: Cell, view: str) -> dict[int, list[float]]:
    """Round -> accuracies of the clients after it; rounds that were not judged are left out."""
    return {
        record.number: accuracies(replace(cell, rounds=cell.rounds[: place + 1]), view)
        for place, record in enumerate(cell.rounds)
        if f"{view}/accuracy" in record.scores
    }


def _averages(cell: Cell, view: str, alone: list[float]) -> Curve:
    return {number: 100 * mean_of(own) for number, own in _judged(cell, view).items()}


def _orders(cell: Cell, view: str, alone: list[float]) -> Curve:
    return {number: _order(own, alone) for number, own in _judged(cell, view).items()}


def _order(own: list[float], alone: list[float]) -> float:
    known = [(a, b) for a, b in zip(alone, own, strict=True) if not math.isnan(a + b)]
    return cf_coefficient(*zip(*known, strict=True)) if known else math.nan


def _mean(curves: Sequence[Curve]) -> Curve:
    """Over the seeds, at the rounds all of them judged: otherwise a curve would jump where a seed ends."""
    common = set.intersection(*(set(one) for one in curves)) or {max(one) for one in curves if one}
    means = {at: mean_of([one[at] for one in curves if at in one]) for at in sorted(common)}
    return {at: value for at, value in means.items() if not math.isnan(value)}


def chart(name: str, title: str, y_label: str, curves: dict[str, Curve], drawn: Mapping[str, Look]) -> Chart:
    y = vertical([value for own in curves.values() for value in own.values()], HEIGHT)
    x = horizontal([at for own in curves.values() for at in own], left=beside(y))
    keys = tuple(Key(place, label, drawn[label]) for place, label in enumerate(curves))
    series = [_series(key, curves[key.label], x, y) for key in keys]
    told = f"{title}. " + "; ".join(_told(key.label, curves[key.label]) for key in keys)
    parts = [axes(x, y, "round", y_label, whole=True), *series]
    return Chart(name, title, picture(name, title, told, HEIGHT, parts), _numbers(name, title, curves), keys)


def _series(key: Key, curve: Curve, x: Scale, y: Scale) -> Markup:
    points = [(x(at), y(value)) for at, value in curve.items()]
    if not points:
        return Markup("")
    judged = points[:-1] if len(points) <= FEW else []
    last = f"{key.label}: {list(curve.values())[-1]:.1f} after round {list(curve)[-1]}"
    parts = [
        line(points, "curve", key.look.dash),
        *(mark(key.look.shape, *point, "dot", size=2.8) for point in judged),
        mark(key.look.shape, *points[-1], "dot", last),
    ]
    group = Markup('<g class="{}" data-series="{}">{}</g>')
    return group.format(key.look.hue, key.number, Markup("").join(parts))


def _told(label: str, curve: Curve) -> str:
    if not curve:
        return f"{label}: nothing known"
    (first, before), *_, (last, after) = [*curve.items(), *curve.items()]  # one round is both
    return f"{label}: {before:.1f} after round {first}, {after:.1f} after round {last}"


def _numbers(name: str, title: str, curves: dict[str, Curve]) -> Table:
    rounds = sorted({at for own in curves.values() for at in own})
    rows = tuple(
        (Entry(str(at), at), *(number(own[at], 1) if at in own else Entry("") for own in curves.values()))
        for at in rounds
    )
    return Table(f"{name}-numbers", title, ("round", *curves), rows)
