"""One plain sentence per method for someone who wonders whether to join."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedakd.fairness import Fairness, mean_gain_interval

WEAK = 40  # CF between this and its negative explains less than a sixth of the spread: it says little
FIRM = 50  # with the lower end of CF above this, "stay stronger" needs no "tend to"


def verdict(method_label: str, per_seed: Sequence[Fairness]) -> str:
    """What joining does to the clients: gain, losers, order of strength; several seeds are pooled."""
    if not per_seed:
        raise ValueError(f"{method_label}: a verdict needs at least one run, got none")
    compared = [run for run in per_seed if run.worse_off is not None]
    if method_label.lower().startswith("standalone"):
        body = f"the reference: every client alone; average {_average(per_seed)}"
    elif not compared:
        body = f"average {_average(per_seed)}; without standalone runs nobody can say whether joining pays"
    else:
        body = _comparison(compared)
    return f"{method_label}: {body}{_remarks(per_seed)}."


def pooled_gain(per_seed: Sequence[Fairness]) -> tuple[float, float, float]:
    """Mean gain over clients and seeds with the ends of its 95 % interval."""
    if len(per_seed) == 1:
        return per_seed[0].mean_gain, per_seed[0].mean_gain_low, per_seed[0].mean_gain_high
    sizes = [len(run.gains) for run in per_seed]
    if len(set(sizes)) != 1:
        raise ValueError(f"runs to pool must have the same number of clients, got {sizes}")
    table = np.array([run.gains for run in per_seed])
    low, high = mean_gain_interval(table, rng=np.random.default_rng(0))
    return float(np.nanmean(table)), low, high


def _comparison(runs: Sequence[Fairness]) -> str:
    if not any(gain for run in runs for gain in run.gains if not math.isnan(gain)):
        return f"joining changes nothing: every client scores as it does alone; average {_average(runs)}"
    gain, low, high = pooled_gain(runs)
    losers = sum(run.worse_off or 0 for run in runs)
    # "but" where the second half speaks against the first: losers after a gain, none after a doubtful one.
    joint = "but" if (low > 0 and losers > 0) or (low <= 0 and losers == 0) else "and"
    return f"{_gain(gain, low, high)} {joint} {_losers(runs, losers)}; {_order(runs)}"


def _gain(gain: float, low: float, high: float) -> str:
    change = f"clients {'gain' if gain >= 0 else 'lose'} {_points(abs(gain))} points on average"
    if math.isnan(low):
        return f"too few clients to tell whether joining pays: {change} (no interval)"
    if low > 0:
        return f"joining pays: {change} (95 % interval {_points(low)} to {_points(high)})"
    if high < 0:
        return f"joining costs: {change} (95 % interval {_points(-high)} to {_points(-low)})"
    lead = "no clear gain" if gain >= 0 else "no clear gain or loss"
    return f"{lead}: {change} (95 % interval of the gain {_points(low)} to {_points(high)})"


def _losers(runs: Sequence[Fairness], losers: int) -> str:
    if losers == 0:
        return "nobody is worse off"
    seen = sum(run.clients for run in runs)
    unit = "clients" if len(runs) == 1 else f"client results over {len(runs)} seeds"
    clearly = sum(run.significantly_worse or 0 for run in runs)
    return (
        f"{losers} of {seen} {unit} {'is' if losers == 1 else 'are'} worse off ({clearly or 'none'} clearly)"
    )


def _order(runs: Sequence[Fairness]) -> str:
    """Who stays stronger; over seeds CF and its ends are averaged: an interval of one run."""
    cf, low, high = (_mean([getattr(run, name) for run in runs]) for name in ("cf", "cf_low", "cf_high"))
    if max(run.clients for run in runs) < 2:
        return "one client alone has no order to keep (CF undefined)"
    if math.isnan(cf):
        return "whether stronger clients stay stronger cannot be told (CF undefined: all clients score alike)"
    numbers = "no interval" if math.isnan(low) else f"interval {near_zero(low, 0)} to {near_zero(high, 0)}"
    return f"{_order_words(low, high)} (CF {cf:.0f}, {numbers}{_undefined(runs)})"


def _order_words(low: float, high: float) -> str:
    if low > 0:
        return f"stronger clients {'stay' if low >= FIRM else 'tend to stay'} stronger"
    if high < 0:
        return "stronger clients end up weaker"
    if max(-low, high) <= WEAK:
        return "strength before joining says little about strength after"
    return "too few clients to tell whether stronger clients stay stronger"


def _undefined(runs: Sequence[Fairness]) -> str:
    missing = sum(math.isnan(run.cf) for run in runs)
    return f", undefined in {missing} of {len(runs)} seeds" if missing else ""


def _remarks(runs: Sequence[Fairness]) -> str:
    """What a reader must know to weigh the sentence."""
    failed = sum(run.failed for run in runs)
    remarks = [f"{len(runs)} seeds"] if len(runs) > 1 else []
    remarks += [f"{failed} failed client result{'s' if failed > 1 else ''} left out"] if failed else []
    return f" [{', '.join(remarks)}]" if remarks else ""


def _average(runs: Sequence[Fairness]) -> str:
    return _points(_mean([run.average for run in runs]))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _points(fraction: float) -> str:
    return near_zero(100 * fraction, 1)


def near_zero(value: float, digits: int) -> str:
    """Rounded, with up to two digits more where that would hide on which side of zero it lies.

    >>> near_zero(-0.04, 1), near_zero(0.31, 0), near_zero(1e-9, 1), near_zero(8.96, 1)
    ('-0.04', '0.3', '0.0', '9.0')
    """
    if abs(value) < 10.0 ** -(digits + 2) / 2:
        return f"{0:.{digits}f}"
    return next(text for more in range(3) if float(text := f"{value:.{digits + more}f}") != 0)
