"""The tables of a report, the same in every form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from fedakd.compare.results import MEASURES, Setting
from fedakd.fairness import Spread
from fedakd.intervals import UNKNOWN, Interval
from fedakd.plan import is_reference
from fedakd.report.standing import places
from fedakd.report.table import Entry, Table, number
from fedakd.summary import Row, named, reference_row
from fedakd.tables import client_names, costs, points, starred
from fedakd.verdict import pooled_gain, sample_gain

OVERVIEW = ("average", "maximum", "cf", "mean_gain")
MARKS = (
    "Bold: best, all others are significantly worse by paired tests over seeds with Holm's correction. "
    "=: not told apart from the largest; few seeds tell little apart, so this does not mean equal."
)
ONE_SEED = "There is one seed: no method can be called best, and intervals of gains are of one draw of rows."
LEAKING_MARKS = "What has seen its own test rows is marked leaky, and competes with nobody."
POINTS = (
    "Accuracies and gains in percentage points, mean ± standard deviation over seeds. The first interval is "
    "of the mean gain over these clients: over seeds, or with one seed of its draw of test rows alone. The "
    "second takes the clients as a sample of clients. Neither is corrected for the number of methods. "
    "~: not converged, the last rounds still gained 0.5 points or more; !: judged on fewer effective test "
    "rows than the rule asks, by force."
)
COSTS = {
    "passes": "passes a round",
    "megabytes_up": "MB up a round",
    "megabytes_down": "MB down a round",
    "seconds": "seconds a round",
}


def overview(settings: Sequence[Setting], measure: str) -> Table:
    """One measure of the model each method is judged by: methods as lines, settings as columns."""
    columns = [_column(setting, measure) for setting in settings]
    methods = dict.fromkeys(method for own in columns for method in own)
    rows = [(_line(method, settings), *(own.get(method, Entry("")) for own in columns)) for method in methods]
    title = f"{MEASURES[measure][0].upper()}{MEASURES[measure][1:]}"
    dataset, labels = columns_of(settings)
    return Table(f"overview-{measure}", f"{title}{dataset}", ("method", *labels), tuple(rows))


def _line(method: str, settings: Sequence[Setting]) -> Entry:
    return Entry(f"{named(method)}{' (leaky)' * any(one.plan.spoils(method) for one in settings)}")


def columns_of(settings: Sequence[Setting]) -> tuple[str, tuple[str, ...]]:
    """What to add to a table's title, and its columns: a dataset that all settings share is told once."""
    datasets = {setting.plan.dataset for setting in settings}
    if len(datasets) > 1:
        return "", tuple(setting.label for setting in settings)
    return f", {datasets.pop()}", tuple(setting.plan.partition for setting in settings)


def marks(settings: Sequence[Setting]) -> str:
    leaking = any(setting.plan.spoiled for setting in settings)
    tested = any(len(row.seeds) > 1 for setting in settings for row in setting.rows)
    return " ".join([MARKS if tested else ONE_SEED, *([LEAKING_MARKS] if leaking else [])])


def titled(setting: Setting, row: Row) -> Entry:
    return Entry(f"{starred(row)}{' (leaky)' * setting.plan.spoils(row.method)}")


def _column(setting: Setting, measure: str) -> dict[str, Entry]:
    marked = places(setting, measure)
    judged = [row for row in setting.rows if row.judged]
    return {
        row.method: replace(_measured(row, row.spread, measure), place=marked.get(row.method, ""))
        for row in judged
    }


def _measured(row: Row, spreads: dict[str, Spread], measure: str) -> Entry:
    """Standalone against itself gains nothing and keeps its own order: that is no result."""
    if is_reference(row.method) and ("cf" in measure or "gain" in measure):
        return Entry("")
    spread = spreads[measure]
    if math.isnan(spread.mean):
        return Entry("failed" if row.failed else "undefined")
    if measure == "cf":
        return _seeds_told(Entry(_with_std(spread), spread.mean), row, measure)
    return Entry(points(spread, sign=measure == "mean_gain"), spread.mean)


def _with_std(spread: Spread) -> str:
    return f"{spread.mean:.1f}" if math.isnan(spread.std) else f"{spread.mean:.1f} ± {spread.std:.1f}"


def accuracy(setting: Setting, name: str) -> Table:
    marked = {measure: places(setting, measure) for measure in ("average", "maximum", "minimum", "mean_gain")}
    rows = tuple((titled(setting, row), *_accuracy_row(row, marked)) for row in setting.rows)
    headers = (
        "method",
        "average",
        "max",
        "min",
        "mean gain",
        "95 % interval",
        "clients as a sample",
        "worse off",
    )
    return Table(f"{name}-accuracy", "Accuracy, and what clients gain by joining", headers, rows, POINTS)


def _accuracy_row(row: Row, marked: dict[str, dict[str, str]]) -> tuple[Entry, ...]:
    spreads = row.spread
    levels = [_marked(row, spreads, one, marked) for one in ("average", "maximum", "minimum")]
    if is_reference(row.method) or row.failed:
        return (*levels, *[Entry("")] * 4)
    ends = gain(row)[1:], sample(row)
    compared = [one for one in row.per_seed if one.worse_off is not None]
    worse, clients = sum(one.worse_off or 0 for one in compared), sum(one.clients for one in compared)
    losers = Entry(f"{worse} of {clients}", worse) if compared else Entry("unknown")
    intervals = (_interval(100 * low, 100 * high) for low, high in ends)
    return (*levels, _marked(row, spreads, "mean_gain", marked), *intervals, losers)


def _marked(row: Row, spreads: dict[str, Spread], measure: str, marked: dict[str, dict[str, str]]) -> Entry:
    place = marked[measure].get(row.method, "") if row.judged else ""
    return replace(_measured(row, spreads, measure), place=place)


def gain(row: Row) -> tuple[float, float, float]:
    """Mean gain over these clients, and the ends of its interval; nan where nothing is compared."""
    compared = [one for one in row.per_seed if one.worse_off is not None]
    return pooled_gain(compared) if compared else (math.nan, *UNKNOWN)


def sample(row: Row) -> Interval:
    """The interval of the mean gain over clients as a sample; nan where nothing is compared."""
    compared = [one for one in row.per_seed if one.worse_off is not None]
    return sample_gain(compared) if compared else UNKNOWN


def _interval(low: float, high: float, digits: int = 1) -> Entry:
    """Sorted by its lower end."""
    if math.isnan(low):
        return Entry("undefined")
    return Entry(f"{low:.{digits}f} to {high:.{digits}f}", low)


def fairness(setting: Setting, name: str) -> Table:
    marked = {"cf": places(setting, "cf")}
    others = [row for row in setting.rows if not is_reference(row.method)]
    rows = tuple((titled(setting, row), *_fairness_row(row, marked)) for row in others)
    headers = ("method", "CF", "95 % interval of one seed", "Spearman", "Jain", "Gini")
    note = (
        "CF is 100 times the Pearson correlation of accuracies with those of Standalone; it is read together "
        "with the gains. Its interval is that of a single seed, over clients; over seeds the ends are "
        "averaged. Jain and Gini are of the gains: Jain is near 1 also if all lose alike, Gini is undefined "
        "if anybody loses. *: of a method's models, the one it is judged by."
    )
    return Table(f"{name}-fairness", "Fairness: who stays stronger", headers, rows, note)


def _fairness_row(row: Row, marked: dict[str, dict[str, str]]) -> tuple[Entry, ...]:
    spreads = row.spread
    low, high = (spreads[end].mean for end in ("cf_low", "cf_high"))
    others = [_seeds_told(number(spreads[one].mean, 2), row, one) for one in ("spearman", "jain", "gini")]
    return (_marked(row, spreads, "cf", marked), _interval(low, high, 0), *others)


def _seeds_told(entry: Entry, row: Row, measure: str) -> Entry:
    """A mean over the seeds where a number is defined says so if those are not all."""
    defined, seeds = row.spread[measure].defined, len(row.per_seed)
    return replace(entry, text=f"{entry.text} ({defined} of {seeds} seeds)") if 0 < defined < seeds else entry


def cost(setting: Setting, name: str) -> Table:
    found = costs(setting.cells)
    rounds = {row.method: fmean(row.rounds) for row in setting.rows}
    rows = tuple(
        (
            Entry(named(method)),
            number(rounds.get(method), 0 if float(rounds.get(method, 0)).is_integer() else 1),
            *(number(own[one], 3) for one in COSTS),
        )
        for method, own in found.items()
    )
    note = (
        "A pass computes one gradient for each training row. Seconds are of training and aggregation, on the "
        "machine where it ran, the median of the seeds; megabytes are those of all clients together, as sent."
    )
    return Table(f"{name}-cost", "What a round costs", ("method", "rounds", *COSTS.values()), rows, note)


def clients(setting: Setting, name: str) -> Table:
    """What each client gains, one column a method: the answer to "does it pay for us?"."""
    judged = [row for row in setting.rows if row.judged]
    alone = reference_row(judged)
    others = [row for row in judged if not is_reference(row.method)]
    rows = tuple(
        (
            Entry(client_names(alone)[k], k),
            number(mean_of([own[k] for own in alone.accuracies]), factor=100),
            *(number(client_gain(row, k), factor=100, sign=True) for row in others),
        )
        for k in range(len(alone.accuracies[0]))
    )
    headers = ("client", "alone", *(row.label for row in others))
    caption = "Accuracy alone, and what each client gains by joining (mean over seeds)"
    return Table(f"{name}-clients", caption, headers, rows)


def client_gain(row: Row, client: int) -> float:
    return mean_of([one.gains[client] for one in row.per_seed if one.gains])


def mean_of(values: Sequence[float]) -> float:
    """Over the seeds where it is known."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan
