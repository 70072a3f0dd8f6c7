"""Methods compared over seeds: paired tests, Holm's correction, intervals, and what a design can find.

Scores are larger for better. Pairs are the keys that both methods have with finite scores: seeds, or
(setting, seed). Seeds of one setting resemble each other more than seeds of two, so what is said of the
latter holds for these settings, not for settings in general.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean, median, median_low, stdev
from typing import Any, Literal

import numpy as np

from fedakd.intervals import UNKNOWN, Array, Interval, bootstrap_ends

Key = Any  # a seed or a (setting, seed); not Hashable: a Mapping of int is no Mapping of Hashable
Scores = Mapping[str, Mapping[Key, float]]  # by method

LEVEL = 0.05
FEWEST_VALUES = 3
# Subtraction leaves digits behind that would break ties; no score is known to twelve of its own.
DIGITS = 12


@dataclass(frozen=True)
class Paired:
    """What the pairs say about a - b, of two methods a and b."""

    n: int
    difference: float  # the mean
    low: float  # 95 % t interval of the mean difference; nan where differences do not vary
    high: float
    p: float  # two-sided
    test: Literal["t", "wilcoxon", "none"]
    favours: int  # 1: a, -1: b, 0: neither; ranks need not favour the one with the larger mean
    adjusted: float  # p after Holm's correction; p itself where it is the only comparison

    @property
    def better(self) -> bool:
        """Significantly, by the test and by the mean."""
        return self.adjusted < LEVEL and self.favours > 0 and self.difference > 0

    @property
    def worse(self) -> bool:
        """Significantly, by the test and by the mean."""
        return self.adjusted < LEVEL and self.favours < 0 and self.difference < 0


def paired(a: Mapping[Key, float], b: Mapping[Key, float], *, comparisons: int = 1) -> Paired:
    """Student's t, or Wilcoxon's signed ranks where there are enough pairs for them to reach 0.05.

    Their least p is 2^(1-n), so that takes 6 pairs, and 9 where p is to be corrected for 10 comparisons.
    Only the numbers of pairs and comparisons choose the test, never the scores, with one exception: equal
    differences other than 0 would make t infinite and p 0 for want of a scale, on as few as two pairs. All
    they show is n equal signs, so their p is that of the ranks, 2^(1-n), and there is no interval.
    """
    differences = differences_of(a, b)
    n = len(differences)
    if n < 2:
        return Paired(n, fmean(differences) if n else math.nan, *UNKNOWN, math.nan, "none", 0, math.nan)
    ranks_suffice = 2.0 ** (1 - n) < LEVEL / comparisons
    test: Literal["t", "wilcoxon"] = "wilcoxon" if ranks_suffice or _constant(differences) else "t"
    p, favours = _wilcoxon(differences) if test == "wilcoxon" else _t(differences)
    return Paired(n, fmean(differences), *_t_interval(differences), p, test, favours, adjusted=p)


def compared(scores: Scores, reference: str) -> dict[str, Paired]:
    """Every other method minus the reference, with p adjusted for their number."""
    if reference not in scores:
        raise ValueError(f"the reference must be one of {list(scores)}, got {reference!r}")
    others = {name: own for name, own in scores.items() if name != reference}
    base = scores[reference]
    comparisons = max(1, sum(len(differences_of(own, base)) > 1 for own in others.values()))
    found = {name: paired(own, base, comparisons=comparisons) for name, own in others.items()}
    adjusted = holm([one.p for one in found.values()])
    return {name: replace(one, adjusted=p) for (name, one), p in zip(found.items(), adjusted, strict=True)}


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: all may be compared with one level; nan stays and does not count.

    >>> holm([0.01, 0.04, 0.02])
    [0.03, 0.04, 0.04]
    """
    order = sorted((place for place, p in enumerate(ps) if not math.isnan(p)), key=lambda place: ps[place])
    adjusted, largest = list(ps), 0.0
    for done, place in enumerate(order):
        largest = max(largest, (len(order) - done) * ps[place])
        adjusted[place] = min(largest, 1.0)
    return adjusted


def bootstrap_mean(
    values: Sequence[float], *, rng: np.random.Generator, draws: int = 2000, level: float = 0.95
) -> Interval:
    """Percentile bootstrap of the mean over the finite values; nan for fewer than 3.

    Of few values it can be no wider than their range. Simulated with normal values, nominal 95 % covered
    75 % with 3, 92 % with 5, 95 % with 10.
    """
    known = np.sort(finite(values))  # in whatever order they came
    if len(known) < FEWEST_VALUES:
        return UNKNOWN
    means = known[rng.integers(len(known), size=(draws, len(known)))].mean(1)
    return bootstrap_ends(means, len(known), level)


def detectable(std: float, n: int, *, power: float = 0.8, level: float = LEVEL) -> float:
    """The least true mean difference that a paired t test of n pairs finds in a share `power` of repetitions.

    `std` is that of the paired differences. nan for fewer than two pairs.
    """
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    if n < 2 or math.isnan(std):
        return math.nan
    critical = float(t.isf(level / 2, n - 1))

    def excess(shift: float) -> float:
        """Of the power over the wanted one, for a mean of `shift` standard errors."""
        # The lower tail as the upper one mirrored: scipy's own is nan where it is tiny.
        return float(nct.sf(critical, n - 1, shift) + nct.sf(critical, n - 1, -shift)) - power

    # There t is critical only if the sample's deviation is five times the true one, or the mean 5 errors off.
    surely = 5 * critical + 5
    return float(brentq(excess, 0.0, surely)) * std / math.sqrt(n)


def detectable_line(
    scores: Scores,
    unit: str,
    *,
    per_unit: float = 1.0,
    pairs: str = "seeds",
    exclude: Collection[str] = (),
    comparisons: int | None = None,
    power: float = 0.8,
) -> str:
    """What this design could have found, in a sentence; `per_unit` is 100 for fractions told in points.

    `comparisons` is with how many others a method is compared, with all if nothing is said.
    """
    rivals = [own for name, own in scores.items() if name not in exclude and finite(list(own.values()))]
    differences = [differences_of(a, b) for a, b in combinations(rivals, 2)]
    usable = [one for one in differences if len(one) > 1]
    if not usable:
        return f"No two methods have two {pairs} in common, so no difference between them could be found."
    n, std = median_low(map(len, usable)), per_unit * median(map(stdev, usable))
    if std == 0:
        return f"Differences between methods do not vary over {pairs}: what could be found cannot be told."
    least = detectable(std, n, power=power)
    others = len(rivals) - 1 if comparisons is None else comparisons
    strictest = _short(detectable(std, n, power=power, level=LEVEL / max(1, others)))
    corrected = f"; {strictest} {unit} if that must outlast the correction for {others} comparisons"
    return (
        f"With {n} {pairs} and a typical standard deviation of paired differences of {_short(std)} {unit}, "
        f"this design would have found true differences of {_short(least)} {unit} or more between two "
        f"methods in {100 * power:.0f} of 100 repetitions{corrected * (others > 1)}."
    )


def differences_of(a: Mapping[Key, float], b: Mapping[Key, float]) -> list[float]:
    """a - b where both are finite, in ascending order, so that no result depends on the order of keys."""
    shared = [(a[key], b[key]) for key in a if key in b and math.isfinite(a[key]) and math.isfinite(b[key])]
    largest = max((abs(value) for pair in shared for value in pair), default=0.0)
    return sorted(rounded(np.array([x - y for x, y in shared]), largest).tolist())


def rounded(values: Array, largest: float) -> Array:
    """To twelve digits of the largest score: what should tie does, and next to nothing is 0."""
    scale = largest or 1.0
    return np.asarray(np.round(values / scale, DIGITS) * scale + 0.0)  # no -0


def finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _constant(differences: Sequence[float]) -> bool:
    return differences[0] == differences[-1]  # they are in order


def _t(differences: Sequence[float]) -> tuple[float, int]:
    from scipy.special import stdtr

    n = len(differences)
    t = fmean(differences) / (stdev(differences) / math.sqrt(n))
    return float(2 * stdtr(n - 1, -abs(t))), int(np.sign(t))


def _t_interval(differences: Sequence[float]) -> Interval:
    from scipy.special import stdtrit

    if _constant(differences):
        return UNKNOWN
    n, mean = len(differences), fmean(differences)
    half = float(stdtrit(n - 1, 1 - LEVEL / 2)) * stdev(differences) / math.sqrt(n)
    return mean - half, mean + half


def _wilcoxon(differences: Sequence[float]) -> tuple[float, int]:
    """Exact with ties and zeros too, which scipy is for up to 13 pairs: accuracies on few rows often tie.

    Zeros are ranked, then left out, as Pratt has it (scipy's zero_method="pratt"): left out before ranking, a
    zero that turns into a small gain could make a gain less significant.
    """
    from scipy.stats import rankdata

    d = np.array(differences)
    twice = np.rint(2 * rankdata(np.abs(d))).astype(int)  # ties have ranks of halves
    up, down = int(twice[d > 0].sum()), int(twice[d < 0].sum())
    chance = np.ones(1)  # of each sum of ranks with random signs
    for rank in twice[d != 0]:
        chance = (np.pad(chance, (0, rank)) + np.pad(chance, (rank, 0))) / 2
    return min(1.0, 2 * float(chance[: min(up, down) + 1].sum())), int(np.sign(up - down))


def _short(value: float) -> str:
    """With two digits that say something.

    >>> _short(0.0123), _short(0.9999), _short(120.4)
    ('0.012', '1.0', '120')
    """
    exponent = int(f"{value:.1e}".partition("e")[2])
    return f"{value:.{max(0, 1 - exponent)}f}"
