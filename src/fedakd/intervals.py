"""Intervals of gains: of one client, of the mean over these clients, and over clients as a sample.

Gains are fractions, so no interval reaches beyond -1 to 1; nan ends mean that there is no interval.
`benchmarks/coverage.py` simulates how often each interval holds the truth; its table is `docs/coverage.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int64]
Interval = tuple[float, float]

UNKNOWN: Interval = (math.nan, math.nan)
SAME = 1e-9  # means that differ by no more than this do not vary


@dataclass(frozen=True, eq=False)
class Paired:
    """The outcomes of two models on the same test rows of one client."""

    rows: Ids  # a repeated id is the same row, drawn again
    before: Bools  # whether the first model has the row right
    after: Bools
    weights: Array  # they sum to 1

    def __post_init__(self) -> None:
        lengths = [len(part) for part in (self.rows, self.before, self.after, self.weights)]
        if len(set(lengths)) != 1 or lengths[0] == 0:
            raise ValueError(
                f"rows, before, after and weights must have one value per test row, got lengths {lengths}"
            )
        if not (np.all(self.weights >= 0) and abs(self.weights.sum() - 1) < 1e-6):
            raise ValueError(
                f"weights must be 0 or more and sum to 1, got a least weight of {self.weights.min():g} "
                f"and a sum of {self.weights.sum():g}; divide them by their sum"
            )

    @property
    def change(self) -> Array:
        """1 where the second model alone is right, -1 where the first alone is, otherwise 0."""
        return np.asarray(self.after.astype(float) - self.before.astype(float))

    @property
    def gain(self) -> float:
        """The weighted accuracy of the second model minus that of the first."""
        return float(self.weights @ self.change)

    @property
    def effective(self) -> float:
        """Kish's effective number of rows: 1 / sum of squared weights, a repeated row counted once."""
        summed = np.bincount(_places(self.rows), self.weights)
        return float(1 / (summed @ summed))


def gain_interval(pair: Paired, level: float = 0.95) -> Interval:
    """The interval of one client's gain, paired on its test rows.

    With equal weights it is that of Bonett and Price (2012, Stat. Methods Med. Res. 21). With unequal ones
    the variance is sum w^2 (d - gain)^2: a variance p (1 - p) / n with Kish's n covered 89 % in place of 95
    where outcomes depend on the weights.
    """
    return row_interval([pair], level)


def row_interval(pairs: Sequence[Paired], level: float = 0.95) -> Interval:
    """The interval of the mean gain over these clients in one seed, from the draw of test rows alone.

    Clients may be judged on the same rows, so what a row contributes is summed over clients before it is
    squared. Two pseudo-rows, a win and a loss, keep the interval open where the models hardly ever differ.
    """
    if not pairs:
        return UNKNOWN
    place = _places(np.concatenate([pair.rows for pair in pairs]))
    weights = np.concatenate([pair.weights for pair in pairs]) / len(pairs)
    summed = np.bincount(place, weights)
    effective = float(1 / (summed @ summed))
    shrink = effective / (effective + 2)
    away = np.concatenate([pair.change - shrink * pair.gain for pair in pairs])
    influence = np.bincount(place, weights * away)
    mean = shrink * float(np.mean([pair.gain for pair in pairs]))
    pseudo = ((1 - mean) ** 2 + (1 + mean) ** 2) / effective**2
    error = shrink * math.sqrt(float(influence @ influence) + pseudo)
    return _t_interval(mean, error, effective + 1, level)


def seed_interval(means: Sequence[float], level: float = 0.95) -> Interval:
    """The t interval of the mean gain over these clients, from the mean gains of two or more seeds.

    A seed stands for everything that is drawn anew: partition, initial weights, batches and test rows. Fewer
    than two seeds, or seeds with one and the same mean, give no scale, so no interval.
    """
    known = np.asarray([mean for mean in means if not math.isnan(mean)], float)
    if len(known) < 2 or np.ptp(known) <= SAME:
        return UNKNOWN
    error = float(known.std(ddof=1)) / math.sqrt(len(known))
    return _t_interval(float(known.mean()), error, len(known) - 1, level)


def client_interval(table: npt.ArrayLike, level: float = 0.95) -> Interval:
    """The interval of the mean gain over clients as a sample of clients; `table` is seeds x clients.

    Clients keep their role over seeds, so both vary at random, crossed. The interval is Satterthwaite's, but
    never narrower than clients or seeds alone would make it: with one or two degrees of freedom the estimated
    ones are too many (Satterthwaite alone covered 88 % with 2 seeds and 50 clients). Of one seed it is a t
    interval over clients. A missing (nan) gain is filled in by its client and its seed.
    """
    gains = np.atleast_2d(np.asarray(table, float))
    gains = gains[np.isfinite(gains).any(1)]
    gains = gains[:, np.isfinite(gains).any(0)]
    seeds, clients = gains.shape
    if clients < 2:
        return UNKNOWN
    if seeds == 1:
        return seed_interval(gains[0].tolist(), level)
    filled = _filled(gains)
    by_client, by_seed = _variances(filled, int(np.isnan(gains).sum()))
    if by_client + by_seed <= SAME**2:
        return UNKNOWN
    half = _widest(by_client, clients - 1, by_seed, seeds - 1, level)
    return _clipped(float(filled.mean()), half)


def bootstrap_ends(draws: Array, units: int, level: float) -> Interval:
    """Quantiles of bootstrap draws, moved outwards where the units resampled, clients or seeds, are few.

    Plain percentiles forget that a resample of n varies (n-1)/n too little and that its scale is a guess:
    simulated with 10 clients, nominal 95 % covered 91 % for CF and 89 % for a mean; so moved, 95 % and 94 %.
    """
    from scipy.special import ndtr, stdtrit  # not needed to import this module

    tail = float(ndtr(math.sqrt(units / (units - 1)) * stdtrit(units - 1, (1 - level) / 2)))
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def _places(rows: Ids) -> Ids:
    """A place for each row, the same for its repeats; ids that lie close together need no sorting."""
    first, last = rows.min(), rows.max()
    if last - first < 10 * len(rows):
        return np.asarray(rows - first)
    return np.unique(rows, return_inverse=True)[1]


def _filled(gains: Array) -> Array:
    """Missing gains replaced by client effect + seed effect, fitted by least squares."""
    known = np.isfinite(gains)
    if known.all():
        return gains
    seeds, clients = gains.shape
    seed, client = np.indices(gains.shape).reshape(2, -1)
    effects = np.hstack([np.eye(seeds)[seed], np.eye(clients)[client]])  # (seeds * clients, effects)
    fitted = np.linalg.lstsq(effects[known.ravel()], gains[known], rcond=None)[0]
    return np.where(known, gains, (effects @ fitted).reshape(gains.shape))


def _variances(gains: Array, missing: int) -> tuple[float, float]:
    """What clients and what seeds add to the variance of the mean, by mean squares (MS).

    E MS_clients = S Var(client) + Var(rest), E MS_seeds = K Var(seed) + Var(rest): their sum counts the rest
    twice, so it is taken off once.
    """
    seeds, clients = gains.shape
    of_client, of_seed = gains.mean(0), gains.mean(1)
    rest = gains - of_client - of_seed[:, None] + gains.mean()
    freedom = max((seeds - 1) * (clients - 1) - missing, 1)
    ms_rest = float((rest**2).sum()) / freedom
    ms_clients, ms_seeds = seeds * float(of_client.var(ddof=1)), clients * float(of_seed.var(ddof=1))
    return ms_clients / gains.size, max(ms_seeds - ms_rest, 0.0) / gains.size


def _widest(by_client: float, client_freedom: int, by_seed: float, seed_freedom: int, level: float) -> float:
    """Half of the widest of three intervals: clients alone, seeds alone, both by Satterthwaite."""
    both = by_client + by_seed
    freedom = both**2 / (by_client**2 / client_freedom + by_seed**2 / seed_freedom)
    parts = ((by_client, client_freedom), (by_seed, seed_freedom), (both, freedom))
    return max(_quantile(degrees, level) * math.sqrt(variance) for variance, degrees in parts)


def _t_interval(mean: float, error: float, freedom: float, level: float) -> Interval:
    return _clipped(mean, _quantile(freedom, level) * error)


def _quantile(freedom: float, level: float) -> float:
    """Of Student's t, two-sided."""
    from scipy.special import stdtrit  # not needed to import this module

    return float(stdtrit(freedom, 0.5 + level / 2))


def _clipped(mean: float, half: float) -> Interval:
    """No gain is beyond -1 to 1, however few the seeds."""
    return max(mean - half, -1.0), min(mean + half, 1.0)
