"""Our results beside the published ones: for each measure methods by datasets and partitions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from fedakd.compare.results import MEASURES, Results, Setting
from fedakd.errors import PlanError, unknown
from fedakd.fairness import Spread
from fedakd.paper.overall import notes_of
from fedakd.paper.published import BOLD, TITLES, Published, published
from fedakd.paper.views import BETWEEN, of_view, other_views, titled
from fedakd.plan import CONVERGED, is_reference
from fedakd.summary import named

if TYPE_CHECKING:
    from fedakd.ranking import Standing

MOST_TOLD = 5
PAPER_MEASURES = ("maximum", "average", "cf")
AGAINST_BOTH = ("budget_gain", "converged_gain", "converged_cf")  # where both references were trained


@dataclass(frozen=True)
class Column:
    """A dataset and partition; `label` tells it from the other columns of its dataset."""

    dataset: str
    partition: str
    label: str


@dataclass(frozen=True)
class Entry:
    """What came of a method in one column, and what was published; None where there is nothing."""

    ours: Standing | None = None
    published: Spread | None = None
    marks: str = ""  # of the row it comes from: see `Row.marks`

    @property
    def difference(self) -> float:
        """Ours less the published, in the measure's own unit; nan if either is missing."""
        return self.ours.mean - self.published.mean if self.ours and self.published else math.nan


@dataclass(frozen=True)
class SubTable:
    table: str
    measure: str
    columns: tuple[Column, ...]
    rows: dict[
        str, tuple[Entry, ...]
    ]  # by method, as plans write it, or method/view; an entry for each column
    notes: tuple[str, ...]  # what the numbers can tell, sentence by sentence
    leaky: frozenset[str] = frozenset()  # methods that have seen their test rows

    def line_of(self, line: str) -> str:
        """How a line of the table begins."""
        return f"{titled(line)}{' (leaky)' * self.leaks(line)}"

    def leaks(self, line: str) -> bool:
        return line.partition(BETWEEN)[0] in self.leaky

    @property
    def title(self) -> str:
        unit = "" if "cf" in self.measure else " (points)" if "gain" in self.measure else " (%)"
        what = f"{MEASURES[self.measure]}{unit}"
        return f"{TITLES[self.table]}, {what}" if self.table in TITLES else f"{what[0].upper()}{what[1:]}"

    @property
    def methods(self) -> dict[str, tuple[Entry, ...]]:
        """The lines of models that methods are judged by."""
        return {line: own for line, own in self.rows.items() if BETWEEN not in line}

    @property
    def factor(self) -> int:
        """From the measure's own unit to points."""
        return 1 if "cf" in self.measure else 100

    @property
    def datasets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column.dataset for column in self.columns))

    def of_dataset(self, dataset: str) -> SubTable:
        """The columns of one dataset."""
        at = [k for k, column in enumerate(self.columns) if column.dataset == dataset]
        return self.part(at)

    def part(self, at: Sequence[int]) -> SubTable:
        """Some of the columns."""
        rows = {method: tuple(own[k] for k in at) for method, own in self.rows.items()}
        return replace(self, columns=tuple(self.columns[k] for k in at), rows=rows)


def subtables(
    results: Results, table: str, measures: Sequence[str] = PAPER_MEASURES, *, seed: int = 0
) -> list[SubTable]:
    """One for each measure; `table` says where the published numbers are, `seed` is of the resampling.

    A table the paper does not have (a comparison of one's own) has nothing published in it.
    """
    for measure in measures:
        if measure not in MEASURES:
            raise PlanError(unknown("measure", measure, MEASURES))
    known = published(table) if table in TITLES else Published(table, {})
    if any(CONVERGED in setting.plan.methods for setting in results.settings):
        measures = (*measures, *AGAINST_BOTH)
    return [_subtable(results, known, measure, seed) for measure in measures]


def _subtable(results: Results, known: Published, measure: str, seed: int) -> SubTable:
    from fedakd.ranking import standings

    columns, methods = columns_of(results.settings), methods_of(results.settings, measure)
    scores = [scores_of(setting, measure) for setting in results.settings]
    places = [
        standings(own, rng=np.random.default_rng(seed), exclude=setting.plan.not_competing)
        for own, setting in zip(scores, results.settings, strict=True)
    ]
    rows = {
        method: tuple(
            Entry(
                ours.get(method),
                known.value(measure, column.dataset, column.partition, method),
                setting.marks(method),
            )
            for ours, column, setting in zip(places, columns, results.settings, strict=True)
        )
        for method in methods
    }
    rows |= {
        line: tuple(beside(setting, line, measure, seed) for setting in results.settings)
        for line in other_views(results.settings)
    }
    competing = [
        without(own, one.plan.not_competing) for own, one in zip(scores, results.settings, strict=True)
    ]
    leaky = frozenset(name for setting in results.settings for name in setting.plan.spoiled)
    found = SubTable(known.table, measure, columns, rows, tuple(notes_of(competing, measure)), leaky)
    return replace(found, notes=(*found.notes, *remarks_on(found, results.settings, known)))


def beside(setting: Setting, line: str, measure: str, seed: int) -> Entry:
    """A model that its method is not judged by: it is shown, and competes with nobody."""
    from fedakd.ranking import standings

    scores = of_view(setting, line, measure)
    found = standings({line: scores}, rng=np.random.default_rng(seed), exclude=[line]) if scores else {}
    return Entry(found.get(line))


def without(scores: dict[str, dict[int, float]], methods: Sequence[str]) -> dict[str, dict[int, float]]:
    return {method: own for method, own in scores.items() if method not in methods}


def columns_of(settings: Sequence[Setting]) -> tuple[Column, ...]:
    """Named by their partition, and by what else of the plan differs where that is not enough."""
    plans = [setting.plan for setting in settings]
    found = []
    for plan in plans:
        twins = [one for one in plans if (one.dataset, one.partition) == (plan.dataset, plan.partition)]
        differing = [field for field in ("preset", "rounds", "clients", "scale") if _differs(field, twins)]
        said = [f"{field} {getattr(plan, field)}" for field in differing]
        found.append(Column(plan.dataset, plan.partition, ", ".join([plan.partition, *said])))
    return tuple(found)


def _differs(field: str, plans: Sequence[object]) -> bool:
    return len({getattr(plan, field) for plan in plans}) > 1


def methods_of(settings: Sequence[Setting], measure: str) -> list[str]:
    """In the order of the plans; clients that train alone have no CF and no gain by joining."""
    asked = dict.fromkeys(method for setting in settings for method in setting.plan.methods)
    against = "cf" in measure or "gain" in measure
    return [method for method in asked if not (against and is_reference(method))]


def scores_of(setting: Setting, measure: str) -> dict[str, dict[int, float]]:
    """Method -> seed -> the measure, of the methods that are shown."""
    shown = methods_of([setting], measure)
    return {method: own for method, own in setting.scores(measure).items() if method in shown}


def remarks_on(table: SubTable, settings: Sequence[Setting], known: Published) -> Iterator[str]:
    """What else a reader must know: seeds that are missing, bold numbers that are not the largest, rounds."""
    if few := list(fewer_seeds(table, settings)):
        more = f" and {len(few) - MOST_TOLD} more" if len(few) > MOST_TOLD else ""
        yield f"Over fewer seeds than planned: {'; '.join(few[:MOST_TOLD])}{more}."
    shown = {(column.dataset, column.partition) for column in table.columns}
    for one in known.overtaken():
        if one.measure == table.measure and (one.dataset, one.partition) in shown:
            yield (
                f"The paper prints {named(BOLD)} in bold for {one.dataset}, {one.partition}, "
                f"though the number of {named(one.method)} is larger."
            )
    if table.measure == "budget_gain" and (line := sgd_line(settings)):
        yield line
    for setting in settings:
        if setting.plan.equal_time or setting.plan.method_rounds:
            yield rounds_line(setting, known)


def sgd_line(settings: Sequence[Setting]) -> str:
    """What methods gain that need plain SGD, over clients alone that train with it too."""
    gains = [
        f"{named(row.method)} {100 * row.spread['sgd_gain'].mean:+.1f} ({setting.plan.partition})"
        for setting in settings
        for row in setting.rows
        if row.judged and setting.plan.needs_sgd(row.method) and row.spread["sgd_gain"].defined
    ]
    return f"Over a Standalone with plain SGD, as they need it: {', '.join(gains)}." if gains else ""


def fewer_seeds(table: SubTable, settings: Sequence[Setting]) -> Iterator[str]:
    """Numbers that are not over all seeds of their plan: not done yet, or undefined."""
    for method, own in table.methods.items():
        for column, setting, entry in zip(table.columns, settings, own, strict=True):
            planned = len(setting.plan.seeds)
            if entry.ours and entry.ours.count < planned:
                yield f"{titled(method)} {column.dataset} {column.label} {entry.ours.count} of {planned}"


def rounds_line(setting: Setting, known: Published) -> str:
    """How many rounds each method got in the same time, mean over seeds."""
    plan, counts = setting.plan, {row.method: fmean(row.rounds) for row in setting.rows if row.judged}
    found = {name: known.rounds(plan.dataset, plan.partition, name) for name in counts}
    said = [
        f"{named(name)} {count:.0f}" + (f" ({found[name]})" if found[name] else "")
        for name, count in counts.items()
    ]
    timed = f" in the time of {named(plan.equal_time)}" if plan.equal_time else ""
    return f"Rounds{timed}, {setting.label} (published): {', '.join(said) or 'none yet'}."
