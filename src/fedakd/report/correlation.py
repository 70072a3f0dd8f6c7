"""How two numbers go together over the clients of a seed; between seeds both move, so they are not pooled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from fedakd.correlation import cf_coefficient, cf_interval
from fedakd.report.scatter import Point
from fedakd.report.tables import mean_of
from fedakd.summary import Row


class Correlation(NamedTuple):
    """Pearson's of one seed and the ends of its 95 % interval over clients; nan where undefined."""

    r: float
    low: float
    high: float


def of_seeds(points: Sequence[Point], seeds: Iterable[int]) -> list[Correlation]:
    return [_of_seed([one for one in points if one.seed == seed], seed) for seed in seeds]


def _of_seed(points: Sequence[Point], seed: int) -> Correlation:
    x, y = [one.x for one in points], [one.y for one in points]
    low, high = cf_interval(x, y, rng=np.random.default_rng(seed))
    return Correlation(cf_coefficient(x, y) / 100, low / 100, high / 100)


def cf_of(row: Row) -> list[Correlation]:
    return [Correlation(one.cf / 100, one.cf_low / 100, one.cf_high / 100) for one in row.per_seed]


def told(found: Sequence[Correlation]) -> str:
    """One seed with its interval; several by their mean, from least to most, with the mean interval below."""
    known = [one.r for one in found if not math.isnan(one.r)]
    if not known:
        return "correlation undefined"
    low, high = mean_of([one.low for one in found]), mean_of([one.high for one in found])
    interval = "" if math.isnan(low) else f"{_short(low)} to {_short(high)}"
    if len(found) == 1:
        return (
            f"correlation {_short(known[0])} ({f'95 % interval {interval}' if interval else 'no interval'})"
        )
    return "\n".join(_of_several(known, len(found) - len(known), interval))


def _of_several(known: Sequence[float], undefined: int, interval: str) -> list[str]:
    ends = f"{_short(min(known))} to {_short(max(known))}"
    seeds = f"{len(known)} seed{'s' if len(known) > 1 else ''}"
    lines = [
        f"mean correlation {_short(fmean(known))} ({seeds}: {ends})",
        f"a single seed's 95 % interval, averaged: {interval}" if interval else "no interval in any seed",
    ]
    return [*lines, *([f"undefined in {undefined}"] if undefined else [])]


def _short(r: float) -> str:
    return f"{round(r, 2) + 0.0:.2f}"  # no negative nothing
