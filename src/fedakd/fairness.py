"""How fair a federation is to its clients: what each gains by joining, and who stays stronger.

Accuracies and gains are fractions of 0-1, CF is -100 to 100, Spearman -1 to 1; undefined is nan, never 0.
A client without an accuracy (nan: it failed) is left out of every number and counted in `failed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from fedakd.correlation import ROUNDING as ROUNDING
from fedakd.correlation import Values, as_pair, cf_interval, same_length, spearman
from fedakd.correlation import cf_coefficient as cf_coefficient
from fedakd.intervals import UNKNOWN, Array, Paired, client_interval, gain_interval, row_interval

Pairs = Sequence[Paired | None]  # one a client
DISAGREEMENT = 1e-5  # of a gain by outcomes and one by accuracies: those of the same rows differ by rounding


@dataclass(frozen=True)
class Fairness:
    """One run seen by its clients; without a standalone reference only averages are known."""

    average: float
    maximum: float
    minimum: float
    clients: int
    failed: int = 0
    cf: float = math.nan
    cf_low: float = math.nan
    cf_high: float = math.nan
    spearman: float = math.nan
    gains: tuple[float, ...] = ()
    gain_low: tuple[float, ...] = ()  # of each client, paired on its test rows
    gain_high: tuple[float, ...] = ()
    mean_gain: float = math.nan
    mean_gain_low: float = math.nan  # over these clients, from this seed's draw of test rows alone
    mean_gain_high: float = math.nan
    sample_gain_low: float = math.nan  # over clients as a sample of clients
    sample_gain_high: float = math.nan
    jain: float = math.nan
    gini: float = math.nan
    worse_off: int | None = None
    significantly_worse: int | None = None  # whose interval lies below 0; None if intervals are not known
    # The mean gain, the clients worse off and CF against each reference there is; nan or None without it.
    budget_gain: float = math.nan  # trained alone for the rounds of the run
    budget_worse_off: int | None = None
    converged_gain: float = math.nan  # trained alone for as long as held-out rows gain by it
    converged_worse_off: int | None = None
    converged_cf: float = math.nan
    sgd_gain: float = math.nan  # trained alone with plain SGD, for methods that need it

    def to_dict(self) -> dict[str, object]:
        """The fields as JSON knows them: undefined is null."""
        return {name: _json(value) for name, value in asdict(self).items()}


class Spread(NamedTuple):
    """Mean and sample standard deviation over the seeds where a number is defined, and how many those are."""

    mean: float
    std: float
    defined: int

    def to_dict(self) -> dict[str, object]:
        return {name: _json(value) for name, value in self._asdict().items()}


def assess(
    standalone: Values | None, federated: Values, pairs: Pairs | None = None, *, seed: int = 0
) -> Fairness:
    """Everything about one run; `standalone` is None where no reference was trained.

    `pairs` are the outcomes of the test rows of each client under both models. Without them, as in results of
    an earlier version, gains have no interval from test rows: accuracies alone do not tell how wide it is.
    """
    after = _accuracies("federated", federated)
    before = after if standalone is None else _accuracies("standalone", standalone)
    outcomes = [None] * len(after) if pairs is None else list(pairs)
    same_length(before, after, outcomes)
    known = np.isfinite(before) & np.isfinite(after)
    if not known.any():
        raise ValueError(f"at least one client must have an accuracy, got none of {len(known)}")
    kept = after[known]
    run = Fairness(float(kept.mean()), float(max(kept)), float(min(kept)), len(kept), len(after) - len(kept))
    if standalone is None:
        return run
    run = _with_gains(run, gains(before.tolist(), after.tolist()), outcomes)
    return _with_fairness(run, before[known].tolist(), kept.tolist(), np.random.default_rng(seed))


def over_seeds(runs: Sequence[Fairness]) -> dict[str, Spread]:
    """Every single number of `Fairness` over independent seeds."""
    if not runs:
        raise ValueError("over_seeds needs at least one run, got none")
    names = [name for name, value in vars(runs[0]).items() if not isinstance(value, tuple)]
    return {name: _spread([getattr(run, name) for run in runs]) for name in names}


def gains(standalone: Values, federated: Values) -> tuple[float, ...]:
    """Federated minus standalone accuracy per client; a difference within rounding is 0."""
    before, after = as_pair(standalone, federated)
    change = after - before
    return tuple(np.where(np.abs(change) <= ROUNDING, 0.0, change).tolist())


def jain(gains: Values) -> float:
    """Jain's index (sum x)^2 / (n sum x^2): 1 if all gain, or all lose, the same; nan if nothing changes.

    Negative gains are allowed and pull it towards 0 where others gain. It tells evenness, not benefit.
    >>> jain([0.1, 0.1]), jain([0.1, 0.0]), jain([0.1, -0.1])
    (1.0, 0.5, 0.0)
    """
    x = np.asarray(gains, float)
    largest = np.abs(x).max(initial=0.0)
    if largest == 0:
        return math.nan
    x = x / largest  # squares of tiny gains must not vanish
    return min(float(x.sum() ** 2 / (len(x) * (x**2).sum())), 1.0)


def gini(gains: Values) -> float:
    """Gini coefficient, 0 if all gain the same; nan, as meaningless, if any gain is negative or all are 0.
    >>> gini([0.1, 0.1]), gini([0.0, 0.2]), gini([-0.1, 0.2])
    (0.0, 0.5, nan)
    """
    x = np.sort(np.asarray(gains, float))
    if len(x) == 0 or not (x[0] >= 0 and x[-1] > 0):
        return math.nan
    x = x / x[-1]
    place = 2 * np.arange(1, len(x) + 1) - len(x) - 1
    return max(0.0, float((place * x).sum() / (len(x) * x.sum())))


def worse_off(gains: Values, tolerance: float = 0.0) -> int:
    """How many clients lose more than the tolerance."""
    return sum(gain < -tolerance for gain in gains)


def _with_gains(run: Fairness, change: tuple[float, ...], outcomes: Pairs) -> Fairness:
    """Gains with their intervals; position k stays client k, nan where it failed."""
    judged = [None if math.isnan(gain) else pair for gain, pair in zip(change, outcomes, strict=True)]
    for client, pair in enumerate(judged):
        _check_same_rows(client, change[client], pair)
    low, high = zip(*(gain_interval(pair) if pair else UNKNOWN for pair in judged), strict=True)
    pairs = [pair for pair in judged if pair]
    complete = len(pairs) == run.clients
    mean_low, mean_high = row_interval(pairs) if complete else UNKNOWN
    sample_low, sample_high = client_interval([change])
    return replace(
        run,
        gains=change,
        gain_low=low,
        gain_high=high,
        mean_gain_low=mean_low,
        mean_gain_high=mean_high,
        sample_gain_low=sample_low,
        sample_gain_high=sample_high,
        worse_off=worse_off(change),
        significantly_worse=worse_off(high) if complete else None,
    )


def _check_same_rows(client: int, gain: float, pair: Paired | None) -> None:
    if pair and abs(pair.gain - gain) > DISAGREEMENT:
        raise ValueError(
            f"outcomes and accuracies of client {client} must be of the same test rows and weights, got a "
            f"gain of {pair.gain:.5f} by outcomes and of {gain:.5f} by accuracies"
        )


def _with_fairness(run: Fairness, before: Values, after: Values, rng: np.random.Generator) -> Fairness:
    change = gains(before, after)
    cf_low, cf_high = cf_interval(before, after, rng=rng)
    return replace(
        run,
        cf=cf_coefficient(before, after),
        cf_low=cf_low,
        cf_high=cf_high,
        spearman=spearman(before, after),
        mean_gain=fmean(change),
        jain=jain(change),
        gini=gini(change),
    )


def _spread(values: Sequence[float | None]) -> Spread:
    known = [value for value in values if value is not None and not math.isnan(value)]
    mean = fmean(known) if known else math.nan
    return Spread(mean, stdev(known) if len(known) > 1 else math.nan, len(known))


def _accuracies(name: str, values: Values) -> Array:
    """Checked: a percentage here would pass for an enormous gain."""
    array = np.asarray(values, float)
    wrong = np.flatnonzero(~(np.isnan(array) | ((array >= 0) & (array <= 1))))
    if len(wrong):
        raise ValueError(f"{name} accuracies must be in 0-1, got {array[wrong[0]]} for client {wrong[0]}")
    return array


def _json(value: object) -> object:
    if isinstance(value, tuple):
        return [_json(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value
