"""A sub-table as text: for the terminal and Markdown, and its numbers for CSV; for LaTeX see beside."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fedakd.paper.tables import Entry, SubTable
from fedakd.tables import markdown_table

if TYPE_CHECKING:
    from fedakd.ranking import Standing

Form = tuple[list[str], list[list[str]]]  # headers and rows
NOTHING = "–"
# The terminal's tables know a column of numbers by its first letters, and an en dash is none of those.
NOTHING_TYPED = "-"
WIDEST = 5  # columns of a block: what fits on 100 characters, or on a page, with results of two lines
MARKED = {
    "~": "~: not converged: the clients' mean accuracy still rose by 0.5 points or more at the end.",
    "!": "!: clients are judged on fewer effective test rows than the rule asks, by force.",
}
MARKS = {"best": "*", "tied": "=", "behind": "<"}
OURS = "Mean ± standard deviation over seeds"
BESIDE = f"{OURS}; in brackets the published number, and ours less that."
UNDEFINED = "?: undefined, as all clients score alike or none could train."
BETTER = "significantly better than all others of its column that compete (paired over seeds, Holm, 0.05)"
MEANING = {
    "terminal": f"*: {BETTER}; =: not told apart from the largest, <: significantly worse than the largest.",
    "markdown": f"Bold: {BETTER}. "
    "Italic: the largest, or not told apart from it; the other competing ones are significantly worse.",
    "latex": f"Bold: {BETTER}. "
    "Underlined: the largest, or not told apart from it; the other competing ones are significantly worse.",
}


UNTESTED = (
    "Without a mark, as they do not compete: FedAKD's other model, further references, and methods that saw "
    "their test rows."
)


class Block(NamedTuple):
    """A part of a table for the terminal: `put(console, *block.forms, title=block.title)`."""

    title: str
    forms: tuple[Form, ...]  # from wide to narrow
    values: tuple[tuple[float, ...], ...]  # ours as measured, line by line; nan where there is nothing


def notes(table: SubTable, form: str) -> list[str]:
    """The sentences below a table, in the words of this form: terminal, markdown or latex."""
    entries = [entry for own in table.rows.values() for entry in own]
    beside = BESIDE if any(entry.published for entry in entries) else f"{OURS}."
    marked = [MEANING[form]] if any(one.ours and one.ours.place in MARKS for one in entries) else []
    unknown = [UNDEFINED] if any(one.ours and math.isnan(one.ours.mean) for one in entries) else []
    untested = (
        [UNTESTED] if marked and any(one.ours and one.ours.place == "excluded" for one in entries) else []
    )
    seen = {mark for entry in entries if entry.ours for mark in entry.marks}
    warned = [text for mark, text in MARKED.items() if mark in seen]
    return [beside, *marked, *untested, *warned, *unknown, *table.notes]


def terminal(table: SubTable) -> list[Block]:
    """A block for each dataset: results on one line where there is room, else the published ones below."""
    return [Block(title_of(cut), _forms(cut), _values(cut)) for cut in cuts_of(table)]


def cuts_of(table: SubTable) -> list[SubTable]:
    """Parts of one dataset and no more columns than fit beside each other."""
    return [
        part.part(range(start, min(start + WIDEST, len(part.columns))))
        for part in map(table.of_dataset, table.datasets)
        for start in range(0, len(part.columns), WIDEST)
    ]


def title_of(cut: SubTable) -> str:
    return f"{cut.title}, {cut.columns[0].dataset}"


def _values(cut: SubTable) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(one.ours.mean if one.ours else math.nan for one in own) for own in cut.rows.values())


def _forms(part: SubTable) -> tuple[Form, ...]:
    def filled(between: str, deviations: bool = True) -> Form:
        return _table(part, lambda entry: _typed(entry, part.factor, between, deviations))

    return filled(" "), filled("\n"), filled("\n", deviations=False)


def _typed(entry: Entry, factor: int, between: str, deviations: bool) -> str:
    ours = NOTHING_TYPED
    if entry.ours:
        mark = MARKS.get(entry.ours.place, "")
        shown = entry.ours if deviations else replace(entry.ours, std=math.nan)
        ours = f"{spread(shown, factor, 1)}{entry.marks} {mark}".strip()
    if not entry.published:
        return ours
    return f"{ours}{between}({_scaled(entry.published.mean, factor):.1f}{_change(entry, factor)})"


def _table(part: SubTable, cell: Callable[[Entry], str]) -> Form:
    headers = ["method", *(column.label for column in part.columns)]
    return headers, [[part.line_of(line), *map(cell, own)] for line, own in part.rows.items()]


def markdown(table: SubTable) -> str:
    """A table for each dataset, with the notes below the last."""
    parts = [table.of_dataset(dataset) for dataset in table.datasets]
    bodies = [
        f"{part.columns[0].dataset}:\n\n"
        + markdown_table(*_table(part, lambda entry: _marked_down(entry, table.factor)))
        for part in parts
    ]
    return "\n\n".join([f"### {table.title}", *bodies, *notes(table, "markdown")]) + "\n"


def _marked_down(entry: Entry, factor: int) -> str:
    ours = spread(entry.ours, factor, 1) + entry.marks if entry.ours else NOTHING
    around = {"best": "**", "tied": "*"}.get(entry.ours.place if entry.ours else "", "")
    return f"{around}{ours}{around}{printed_beside(entry, factor)}"


def printed_beside(entry: Entry, factor: int) -> str:
    """The published number with its digits, and ours less that."""
    if not entry.published:
        return ""
    mean, std = (_scaled(one, factor) for one in (entry.published.mean, entry.published.std))
    return f" ({mean:.2f} ± {std:.2f}{_change(entry, factor)})"


def spread(ours: Standing, factor: int, digits: int) -> str:
    if math.isnan(ours.mean):
        return "?"
    mean = f"{_near(ours.mean, factor, digits):.{digits}f}"
    return mean if math.isnan(ours.std) else f"{mean} ± {_scaled(ours.std, factor):.{digits}f}"


def _change(entry: Entry, factor: int) -> str:
    known = not math.isnan(entry.difference)
    return f", {_near(entry.difference, factor, 1):+.1f}" if known else ""


def _near(value: float, factor: int, digits: int) -> float:
    return round(_scaled(value, factor), digits) + 0.0  # no negative nothing


def _scaled(value: float, factor: int) -> float:
    """As the paper would print it: 0.8915 is 89.15 and no 89.14999999999999, which rounds otherwise."""
    return round(factor * value, 10)


def csv_rows(table: SubTable) -> list[dict[str, Any]]:
    """One row for each method and column, in points; what is not there is empty."""
    return [
        {
            "table": table.table,
            "measure": table.measure,
            "dataset": column.dataset,
            "partition": column.partition,
            "column": column.label,
            "method": method,
            "leaky": table.leaks(method),
            **_numbers(entry, table.factor),
        }
        for method, own in table.rows.items()
        for column, entry in zip(table.columns, own, strict=True)
    ]


def _numbers(entry: Entry, factor: int) -> dict[str, Any]:
    ours, known = entry.ours, entry.published
    scaled = {name: _points(getattr(ours, name, math.nan), factor) for name in ("mean", "std", "low", "high")}
    return {
        "mean": scaled["mean"],
        "std": scaled["std"],
        "n": ours.count if ours else 0,
        "low": scaled["low"],
        "high": scaled["high"],
        "place": ours.place if ours else "",
        "p": _points(ours.p if ours else math.nan, 1),
        "published_mean": _points(known.mean if known else math.nan, factor),
        "published_std": _points(known.std if known else math.nan, factor),
        "difference": _points(entry.difference, factor),
    }


def _points(value: float, factor: int) -> float | str:
    return "" if math.isnan(value) else _scaled(value, factor)
