"""One plain sentence per method for someone who wonders whether to join."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from fedakd.fairness import Fairness
from fedakd.intervals import Interval, client_interval, seed_interval

VerdictClass = Literal["pays", "costs", "unclear"]

WEAK = 40  # CF between this and its negative explains less than a sixth of the spread: it says little
FIRM = 50  # with the lower end of CF above this, "stay stronger" needs no "tend to"
SAME_MEANS = "all seeds give the same mean gain"
NO_OUTCOMES = "the outcomes of test rows are not stored"


def verdict(
    method_label: str,
    per_seed: Sequence[Fairness],
    *,
    unconverged: str | None = None,
    passes: tuple[float, float] | None = None,
    over: str = "",
) -> str:
    """What joining does to the clients: gain, losers, order of strength; several seeds are pooled.

    `unconverged` says which run or reference has not converged; then the sentence gives the numbers without
    a verdict. `passes` are those over the training rows, joined and alone; they are given where they differ.
    `over` names a reference other than Standalone with the rounds of the run.
    """
    if not per_seed:
        raise ValueError(f"{method_label}: a verdict needs at least one run, got none")
    compared = [run for run in per_seed if run.worse_off is not None]
    if method_label.lower() == "standalone":
        body = f"the reference: every client alone; average {_average(per_seed)}"
    elif not compared:
        body = f"average {_average(per_seed)}; without standalone runs nobody can say whether joining pays"
    else:
        body = _comparison(compared, unconverged, over)
    return f"{method_label}: {body}{_remarks(per_seed, passes)}."


def verdict_class(per_seed: Sequence[Fairness]) -> VerdictClass:
    """Whether the 95 % interval of the mean gain over these clients lies above zero, below it or neither.

    Runs that were compared with no reference are left out; without an interval it is unclear.
    """
    compared = [run for run in per_seed if run.worse_off is not None]
    return class_of(*pooled_gain(compared)[1:]) if compared else "unclear"


def class_of(low: float, high: float) -> VerdictClass:
    """The class of an interval of a gain; without one (nan) it is unclear.

    >>> class_of(0.01, 0.02), class_of(-0.02, -0.01), class_of(-0.01, 0.01), class_of(math.nan, math.nan)
    ('pays', 'costs', 'unclear', 'unclear')
    """
    return "pays" if low > 0 else "costs" if high < 0 else "unclear"


def pooled_gain(per_seed: Sequence[Fairness]) -> tuple[float, float, float]:
    """Mean gain over these clients with the ends of its 95 % interval.

    The interval of one seed is of its draw of test rows alone; that of several is over seeds. Clients that
    failed are left out of the mean of their seed.
    """
    if len(per_seed) == 1:
        return per_seed[0].mean_gain, per_seed[0].mean_gain_low, per_seed[0].mean_gain_high
    sizes = [len(run.gains) for run in per_seed]
    if len(set(sizes)) != 1:
        raise ValueError(f"runs to pool must have the same number of clients, got {sizes}")
    means = [run.mean_gain for run in per_seed]
    return fmean(means), *seed_interval(means)


def sample_gain(per_seed: Sequence[Fairness]) -> Interval:
    """The 95 % interval of the mean gain over clients as a sample of clients, not of these alone."""
    if len(per_seed) == 1:
        return per_seed[0].sample_gain_low, per_seed[0].sample_gain_high
    return client_interval([run.gains for run in per_seed])


def _comparison(runs: Sequence[Fairness], unconverged: str | None, over: str) -> str:
    losers = sum(run.worse_off or 0 for run in runs)
    gain, low, high = pooled_gain(runs)
    if unconverged:
        numbers = (
            f"{_change(gain)}{over} ({_interval(low, high, runs)}), {_losers(runs, losers)}, CF {_cf(runs)}"
        )
        return f"no verdict yet: {unconverged}; so far {numbers}"
    if not any(gain for run in runs for gain in run.gains if not math.isnan(gain)):
        return f"joining changes nothing: every client scores as it does alone; average {_average(runs)}"
    # "but" where the second half speaks against the first: losers after a gain, none after a doubtful one.
    joint = "but" if (low > 0) == (losers > 0) else "and"
    return f"{_gain(gain, low, high, runs, over)} {joint} {_losers(runs, losers)}; {_order(runs)}"


def _gain(gain: float, low: float, high: float, runs: Sequence[Fairness], over: str) -> str:
    leads = {"pays": "joining pays", "costs": "joining costs"}
    unclear = "no clear gain" if gain >= 0 else "no clear gain or loss"
    lead = leads.get(class_of(low, high), unclear)
    return f"{lead}: {_change(gain)}{over} ({_interval(low, high, runs)})"


def _change(gain: float) -> str:
    return f"clients {'gain' if gain >= 0 else 'lose'} {_points(abs(gain))} points on average"


def _interval(low: float, high: float, runs: Sequence[Fairness]) -> str:
    """The ends, and what they are an interval of."""
    if math.isnan(low):
        return f"no interval: {SAME_MEANS if len(runs) > 1 else NO_OUTCOMES}"
    ends = {
        "pays": f"{_points(low)} to {_points(high)}",
        "costs": f"{_points(-high)} to {_points(-low)}",
        "unclear": f"a gain of {_points(low)} to {_points(high)}",
    }[class_of(low, high)]
    if len(runs) > 1:
        return f"95 % interval over seeds: {ends}"
    return f"95 % interval of this one draw of rows: {ends}; other seeds may differ"


def _losers(runs: Sequence[Fairness], losers: int) -> str:
    if losers == 0:
        return "nobody is worse off"
    seen = sum(run.clients for run in runs)
    unit = "clients" if len(runs) == 1 else f"client results over {len(runs)} seeds"
    return f"{losers} of {seen} {unit} {'is' if losers == 1 else 'are'} worse off{_clearly(runs)}"


def _clearly(runs: Sequence[Fairness]) -> str:
    """How many are worse off by their own interval, where all have one."""
    counts = [run.significantly_worse for run in runs if run.significantly_worse is not None]
    return f" ({sum(counts) or 'none'} clearly)" if len(counts) == len(runs) else ""


def _cf(runs: Sequence[Fairness]) -> str:
    cf = _mean([run.cf for run in runs])
    return "undefined" if math.isnan(cf) else f"{cf:.0f}"


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


def _remarks(runs: Sequence[Fairness], passes: tuple[float, float] | None) -> str:
    """What a reader must know to weigh the sentence."""
    failed = sum(run.failed for run in runs)
    remarks = [f"{len(runs)} seeds"] if len(runs) > 1 else []
    remarks += [_compute(*passes)] if passes and not math.isclose(*passes, rel_tol=0.01) else []
    remarks += [f"{failed} failed client result{'s' if failed > 1 else ''} left out"] if failed else []
    return f" [{', '.join(remarks)}]" if remarks else ""


def _compute(joined: float, alone: float) -> str:
    return f"{joined:.1f} passes over the training rows, alone {alone:.1f}"


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
