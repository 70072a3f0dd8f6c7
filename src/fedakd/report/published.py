"""What the paper printed, beside ours; and what all settings together can tell."""

from __future__ import annotations

from collections.abc import Sequence

from fedakd.compare.results import MEASURES, Results, Setting
from fedakd.paper.forms import BESIDE, MEANING, Block, terminal
from fedakd.paper.overall import notes_of
from fedakd.paper.published import TITLES
from fedakd.paper.tables import scores_of, subtables
from fedakd.report.table import Entry, Table

NOTE = f"{BESIDE} {MEANING['terminal']}"


def beside(results: Results) -> list[Table]:
    """The paper's sub-tables with both numbers, if these are results of one of its tables."""
    if results.table not in TITLES:
        return []
    blocks = [block for part in subtables(results, results.table) for block in terminal(part)]
    return [_table(block, f"published-{at}") for at, block in enumerate(blocks, 1)]


def _table(block: Block, name: str) -> Table:
    headers, rows = block.forms[0]
    return Table(name, block.title, tuple(headers), tuple(tuple(map(Entry, row)) for row in rows))


def overall(settings: Sequence[Setting], measures: Sequence[str]) -> list[str]:
    """Who is ahead over all settings, and what differences could have been found."""
    if len(settings) < 2:
        return []
    return [
        f"{MEASURES[measure]}: {line}"
        for measure in measures
        for line in notes_of([scores_of(one, measure) for one in settings], measure)
    ]
