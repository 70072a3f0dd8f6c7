"""Many methods in order: who is best in a column of a table, and Friedman's ranks over many."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

import numpy as np

from fedakd.intervals import Array
from fedakd.statistics import LEVEL, Key, Scores, bootstrap_mean, compared, finite, rounded

Place = Literal["best", "tied", "behind", "only", "excluded", "unknown"]


@dataclass(frozen=True)
class Standing:
    """One method in one column of a table."""

    mean: float
    std: float  # nan for a single value
    count: int
    low: float  # 95 % bootstrap interval of the mean; nan for fewer than 3 values
    high: float
    p: float  # against the leader, after Holm's correction; nan for the leader and whoever does not compete
    place: Place


def standings(
    scores: Scores, *, rng: np.random.Generator, exclude: Collection[str] = ()
) -> dict[str, Standing]:
    """Everybody's place; bold is for "best" alone: all others are significantly worse than the leader.

    The leader is who has the largest mean. Otherwise it is "tied" with all who are not significantly worse,
    also for want of seeds: a tie is a difference not shown, not one shown to be nothing. "only": nobody to
    compete with. "unknown": no finite score. "excluded": shown without competing, as `exclude` says.

    Choosing the leader by the scores it is then tested with is a selection. "best" stays conservative, as
    all others must be worse, the nearest at the plain 5 %: among equal normal methods somebody was best in
    5 % of simulated columns with 2 methods, in less than 1 % with 3 and in none with 11 (3 seeds each); if
    two equal ones are far ahead of the rest it is 5 % again. "behind" is not conservative: a lucky leader
    makes others look worse, and among 11 equal methods somebody was behind in about 10 % of columns with 3
    seeds and 15 % with 27. It says how a method stands to this leader, and no more.
    """
    known = {name: finite(list(own.values())) for name, own in scores.items()}
    places = _places({name: own for name, own in scores.items() if known[name] and name not in exclude})
    seed = int(rng.integers(2**63))  # one for all: equal scores get equal intervals
    return {
        name: _standing(values, *places.get(name, (math.nan, "excluded" if values else "unknown")), seed)
        for name, values in known.items()
    }


@dataclass(frozen=True)
class Ranks:
    """Methods ranked within each block, 1 for the best, and averaged."""

    ranks: dict[str, float]  # the best first
    chi2: float
    p: float
    blocks: int
    critical_difference: float  # Nemenyi's at 0.05: mean ranks so far apart differ significantly
    groups: tuple[tuple[str, ...], ...]  # two or more neighbours, as many as are not that far apart


def friedman(scores: Scores) -> Ranks | None:
    """Friedman's test over the keys where all methods are finite; those without any score are left out.

    None for fewer than 3 methods, as two are a paired test's, or than 2 blocks: the ranks of one are always
    1 to k, whatever happened. Blocks are taken as independent: for a claim about settings rather than seeds
    give one key a setting, its mean over seeds.
    """
    from scipy.stats import friedmanchisquare, rankdata

    known = {name: own for name, own in scores.items() if finite(list(own.values()))}
    table = _table(known)  # (blocks, methods)
    blocks, methods = table.shape
    if methods < 3 or blocks < 2:
        return None
    ranks = rankdata(-table, axis=1)
    # With nothing but ties the statistic is 0/0; it has no reason to doubt that all are equal.
    chi2, p = friedmanchisquare(*table.T) if np.ptp(ranks) > 0 else (0.0, 1.0)
    mean = dict(sorted(zip(known, ranks.mean(0).tolist(), strict=True), key=lambda pair: pair[1]))
    distance = critical_difference(methods, blocks)
    return Ranks(mean, float(chi2), float(p), blocks, distance, _groups(mean, distance))


def critical_difference(methods: int, blocks: int, level: float = LEVEL) -> float:
    """Nemenyi's, q sqrt(k (k + 1) / 6N), with q the quantile of the studentized range over sqrt 2."""
    from scipy.stats import studentized_range

    q = float(studentized_range.isf(level, methods, math.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * blocks))


def _places(competing: Scores) -> dict[str, tuple[float, Place]]:
    """Each one's adjusted p against the leader, and its place."""
    if len(competing) < 2:
        return dict.fromkeys(competing, (math.nan, "only"))
    found = compared(competing, leader := _leader(competing))
    top: Place = "best" if all(one.worse for one in found.values()) else "tied"
    others: dict[str, tuple[float, Place]] = {
        name: (one.adjusted, "behind" if one.worse else "tied") for name, one in found.items()
    }
    return {leader: (math.nan, top), **others}


def _leader(competing: Scores) -> str:
    """Of equal means the first: their last digits must not choose."""
    means = np.array([fmean(finite(list(own.values()))) for own in competing.values()])
    return list(competing)[int(rounded(means, float(np.abs(means).max())).argmax())]


def _standing(values: Sequence[float], p: float, place: Place, seed: int) -> Standing:
    mean = fmean(values) if values else math.nan
    std = stdev(values) if len(values) > 1 else math.nan
    low, high = bootstrap_mean(values, rng=np.random.default_rng(seed))
    return Standing(mean, std, len(values), low, high, p, place)


def _table(scores: Mapping[str, Mapping[Key, float]]) -> Array:
    """Blocks by methods, without the digits that would break ties."""
    rows = [[own.get(key, math.nan) for own in scores.values()] for key in next(iter(scores.values()), ())]
    table = np.array(rows, float).reshape(len(rows), len(scores))
    whole = table[np.isfinite(table).all(1)]
    return rounded(whole, float(np.abs(whole).max(initial=0.0)))


def _groups(ranks: Mapping[str, float], distance: float) -> tuple[tuple[str, ...], ...]:
    """The longest runs of neighbours closer than the distance; a run within another is no group."""
    names, values = list(ranks), list(ranks.values())
    ends = [sum(value < first + distance for value in values) for first in values]  # of the run from each
    starts = [k for k in range(len(names)) if ends[k] > k + 1 and (k == 0 or ends[k] > ends[k - 1])]
    return tuple(tuple(names[k : ends[k]]) for k in starts)
