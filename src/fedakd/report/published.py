"""What the paper printed, beside ours; and what all settings together can tell."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from fedakd.compare.results import MEASURES, Results, Setting
from fedakd.paper.forms import Block, notes, terminal
from fedakd.paper.overall import notes_of
from fedakd.paper.published import TITLES
from fedakd.paper.tables import SubTable, scores_of, subtables
from fedakd.report.table import Entry, Table


def printed(results: Results) -> list[SubTable]:
    """The paper's sub-tables with both numbers; none if it has no number of these datasets and partitions."""
    parts = subtables(results, results.table) if results.table in TITLES else []
    entries = [entry for part in parts for own in part.rows.values() for entry in own]
    return parts if any(entry.published for entry in entries) else []


def beside(parts: Sequence[SubTable], told: Collection[str] = ()) -> list[Table]:
    """The sub-tables, each with its notes below, but for those that `overall` has told."""
    found: list[Table] = []
    for part in parts:
        blocks = terminal(part)
        found += [_table(block, f"published-{len(found) + at}") for at, block in enumerate(blocks, 1)]
        own = [line for line in notes(part, "terminal") if _of(part.measure, line) not in told]
        found[-1] = replace(found[-1], note=" ".join(own))
    return found


def _table(block: Block, name: str) -> Table:
    headers, lines = block.forms[0]
    rows = tuple(
        (Entry(method), *map(_entry, texts, own))
        for (method, *texts), own in zip(lines, block.values, strict=True)
    )
    return Table(name, block.title, tuple(headers), rows)


def _entry(text: str, ours: float) -> Entry:
    return Entry(text, None if math.isnan(ours) else ours)


def overall(settings: Sequence[Setting], measures: Sequence[str]) -> list[str]:
    """Who is ahead over all settings, and what differences could have been found."""
    if len(settings) < 2:
        return []
    return [
        _of(measure, line)
        for measure in measures
        for line in notes_of([_competing(one, measure) for one in settings], measure)
    ]


def _competing(setting: Setting, measure: str) -> dict[str, dict[int, float]]:
    hidden = setting.plan.not_competing
    return {name: own for name, own in scores_of(setting, measure).items() if name not in hidden}


def _of(measure: str, line: str) -> str:
    return f"{MEASURES[measure]}: {line}"
