"""One method seen by its clients: what each gains, and what that goes together with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedakd.compare.results import Setting
from fedakd.fairness import ROUNDING
from fedakd.paper.overall import SUBJECT
from fedakd.plan import is_reference
from fedakd.report.audit import divergence, train_rows
from fedakd.report.charts import Chart
from fedakd.report.correlation import cf_of, of_seeds, told
from fedakd.report.dumbbell import Pair, dumbbell
from fedakd.report.scatter import Point, scatter
from fedakd.report.table import Entry, Table, number
from fedakd.report.tables import mean_of
from fedakd.summary import Row, reference_row

NOBODY = "No client has an accuracy alone and after joining: there is nothing to draw."
INFINITE = "the shift of every client is infinite, as its rows span fewer dimensions than the pool"


@dataclass(frozen=True)
class Client:
    """One client in one seed; accuracies as fractions, nan where nothing is known."""

    client: int
    seed: int
    alone: float
    joined: float
    gain: float
    low: float
    high: float
    shift: float  # KL of its inputs against the pool, which can be infinite
    rows: float
    contribution: float

    @property
    def told(self) -> str:
        levels = f"alone {100 * self.alone:.1f}, joined {100 * self.joined:.1f}"
        return f"client {self.client}, seed {self.seed}: {levels}"


@dataclass(frozen=True)
class Panel:
    """What is shown of one method."""

    name: str
    label: str
    charts: tuple[Chart, ...]
    absent: tuple[str, ...]  # why a chart is not there
    numbers: Table


def panels(setting: Setting, name: str) -> list[Panel]:
    """The first is what is shown until another is chosen."""
    others = [row for row in setting.rows if row.judged and not is_reference(row.method)]
    numbered = sorted(enumerate(others), key=lambda one: one[1].method.split("(")[0] != SUBJECT)
    return [panel(row, clients_of(setting, row), f"{name}-m{at}") for at, row in numbered]


def clients_of(setting: Setting, row: Row) -> list[Client]:
    """Every client in every seed, as stored."""
    reference = reference_row(setting.rows)
    alone = dict(zip(reference.seeds, reference.accuracies, strict=True))
    return [
        _client(setting, row, place, client, alone[seed][client])
        for place, seed in enumerate(row.seeds)
        for client in range(len(row.accuracies[place]))
    ]


def _client(setting: Setting, row: Row, place: int, client: int, alone: float) -> Client:
    seed, one = row.seeds[place], row.per_seed[place]
    gain, low, high = (own[client] if own else math.nan for own in (one.gains, one.gain_low, one.gain_high))
    trained_on = setting.leaky_audits if setting.plan.leaks(row.method) else setting.audits
    audit = trained_on.get(seed)
    shares = next(
        c.rounds[-1].contributions for c in setting.cells if (c.method, c.seed) == (row.method, seed)
    )
    share = shares[client] if shares else math.nan
    joined, shift, rows = row.accuracies[place][client], divergence(audit, client), train_rows(audit, client)
    return Client(client, seed, alone, joined, gain, low, high, shift, rows, share)


def panel(row: Row, found: Sequence[Client], name: str) -> Panel:
    compared = any(not math.isnan(one.gain) for one in found)
    drawn = [
        dumbbell(f"{name}-dumbbell", f"{row.label}: what each client gains", _pairs(found)),
        *(_scatters(row, found, name) if compared else [NOBODY]),
    ]
    charts = tuple(one for one in drawn if isinstance(one, Chart))
    absent = tuple(one for one in drawn if isinstance(one, str))
    return Panel(name, row.label, charts, absent, _numbers(row, found, name))


def _scatters(row: Row, found: Sequence[Client], name: str) -> list[Chart | str]:
    """Each chart, or why it is not there; gains are drawn against rows only where shifts cannot be."""
    by_shift = _by_shift(row, found, f"{name}-shift")
    return [
        _fairness(row, found, f"{name}-fairness"),
        by_shift,
        *([] if isinstance(by_shift, Chart) else [_by_rows(row, found, f"{name}-rows")]),
        _contribution(row, found, f"{name}-contribution"),
    ]


def _pairs(found: Sequence[Client]) -> list[Pair]:
    """Means over the seeds where both accuracies are known."""
    numbers = dict.fromkeys(one.client for one in found)
    known = [one for one in found if not math.isnan(one.gain)]
    own = {k: [one for one in known if one.client == k] for k in numbers}
    return [
        Pair(k, mean_of([c.alone for c in all_]), mean_of([c.joined for c in all_]))
        for k, all_ in own.items()
    ]


def _fairness(row: Row, found: Sequence[Client], name: str) -> Chart:
    points = _points(found, lambda one: 100 * one.alone, lambda one: 100 * one.joined)
    labels = "accuracy alone (points)", "accuracy after joining (points)"
    title = f"{row.label}: do stronger clients stay stronger?"
    return scatter(name, title, points, *labels, told(cf_of(row)), rest="diagonal")


def _by_shift(row: Row, found: Sequence[Client], name: str) -> Chart | str:
    points = _points(found, lambda one: one.shift, lambda one: 100 * one.gain)
    infinite = sum(math.isinf(one.shift) and not math.isnan(one.gain) for one in found)
    if not points:
        why = INFINITE if infinite else "no shift of inputs was measured"
        return f"Shift against gain is not drawn: {why}."
    remark = told(of_seeds(points, row.seeds)) + f"\n{infinite} left out: shift is infinite" * bool(infinite)
    title, labels = f"{row.label}: shift against gain", ("KL(x) from the pool", "gain (points)")
    return scatter(name, title, points, *labels, remark, rest="level")


def _by_rows(row: Row, found: Sequence[Client], name: str) -> Chart | str:
    points = _points(found, lambda one: one.rows, lambda one: 100 * one.gain)
    if not points or _alike(points):
        why = "all clients have equally many" if points else "no audit is stored"
        return f"Training rows against gain is not drawn: {why}."
    title, labels = f"{row.label}: training rows against gain", ("training rows", "gain (points)")
    return scatter(name, title, points, *labels, told(of_seeds(points, row.seeds)), rest="level")


def _contribution(row: Row, found: Sequence[Client], name: str) -> Chart | str:
    points = _points(found, lambda one: one.contribution, lambda one: 100 * one.joined)
    if not points or _alike(points):
        holds = "holds all contributions to be equal" if points else "keeps no account of contributions"
        return f"Contribution against accuracy is not drawn: the method {holds}."
    labels = "contribution, as the method holds it", "accuracy after joining (points)"
    remark = told(of_seeds(points, row.seeds))
    return scatter(name, f"{row.label}: contribution against accuracy", points, *labels, remark)


def _alike(points: Sequence[Point]) -> bool:
    """In every seed all clients stand at one place: there is nothing to be read from where they stand."""
    seeds = {one.seed: [other.x for other in points if other.seed == one.seed] for one in points}
    return all(max(own) - min(own) <= 1e-6 * max(map(abs, own)) for own in seeds.values())


def _points(
    found: Sequence[Client], across: Callable[[Client], float], up: Callable[[Client], float]
) -> list[Point]:
    points = [Point(across(one), up(one), one.seed, one.gain < -ROUNDING, one.told) for one in found]
    return [point for point in points if math.isfinite(point.x) and math.isfinite(point.y)]


def _numbers(row: Row, found: Sequence[Client], name: str) -> Table:
    headers = ("client", "seed", "alone", "joined", "gain", "from", "to", "KL(x)", "rows", "contribution")
    rows = tuple(
        (
            Entry(str(one.client), one.client),
            Entry(str(one.seed), one.seed),
            *(number(value, factor=100) for value in (one.alone, one.joined)),
            number(one.gain, factor=100, sign=True),
            *(_end(value) for value in (one.low, one.high)),
            _known(one.shift, 2),
            _known(one.rows, 0),
            _known(one.contribution, 4),
        )
        for one in found
    )
    caption = f"{row.label}, every client and seed; from, to: 95 % interval of the gain on its test rows"
    return Table(f"{name}-numbers", caption, headers, rows)


def _end(value: float) -> Entry:
    """Of an interval, in points; empty where there is none."""
    return Entry("") if math.isnan(value) else number(value, factor=100, sign=True)


def _known(value: float, digits: int) -> Entry:
    if math.isinf(value):
        return Entry("infinite")
    return Entry("") if math.isnan(value) else number(value, digits)
