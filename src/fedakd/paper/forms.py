"""A sub-table as text: for the terminal, Markdown and LaTeX, and its numbers for CSV."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fedakd.paper.tables import Entry, SubTable
from fedakd.paper.views import titled
from fedakd.tables import markdown_table

if TYPE_CHECKING:
    from fedakd.ranking import Standing

Form = tuple[list[str], list[list[str]]]  # headers and rows
NOTHING = "–"
# The terminal's tables know a column of numbers by its first letters, and an en dash is none of those.
NOTHING_TYPED = "-"
WIDEST = 5  # columns of a block: what fits on 100 characters with results of two lines
MARKS = {"best": "*", "tied": "=", "behind": "<"}
OURS = "Mean ± standard deviation over seeds"
BESIDE = f"{OURS}; in brackets the published number, and ours less that."
UNDEFINED = "?: undefined, as all clients score alike or none could train."
MEANING = {
    "terminal": "*: significantly better than all others of its column (paired over seeds, Holm, 0.05); "
    "=: not told apart from the largest, <: significantly worse than the largest.",
    "markdown": "Bold: significantly better than all others of its column (paired over seeds, Holm, 0.05). "
    "Italic: the largest, or not told apart from it; the other competing ones are significantly worse.",
    "latex": "Bold: significantly better than all others of its column (paired over seeds, Holm, 0.05). "
    "Underlined: the largest, or not told apart from it; the other competing ones are significantly worse.",
}


UNTESTED = (
    "Lines that do not compete bear no mark: FedAKD's other model, and methods that train on their test rows."
)


class Block(NamedTuple):
    """A part of a table for the terminal: `put(console, *block.forms, title=block.title)`."""

    title: str
    forms: tuple[Form, ...]  # from wide to narrow


def notes(table: SubTable, form: str) -> list[str]:
    """The sentences below a table, in the words of this form: terminal, markdown or latex."""
    entries = [entry for own in table.rows.values() for entry in own]
    beside = BESIDE if any(entry.published for entry in entries) else f"{OURS}."
    marked = [MEANING[form]] if any(one.ours and one.ours.place in MARKS for one in entries) else []
    unknown = [UNDEFINED] if any(one.ours and math.isnan(one.ours.mean) for one in entries) else []
    untested = (
        [UNTESTED] if marked and any(one.ours and one.ours.place == "excluded" for one in entries) else []
    )
    return [beside, *marked, *untested, *unknown, *table.notes]


def terminal(table: SubTable) -> list[Block]:
    """A block for each dataset: results on one line where there is room, else the published ones below."""
    parts = [table.of_dataset(dataset) for dataset in table.datasets]
    cuts = [
        part.part(range(start, min(start + WIDEST, len(part.columns))))
        for part in parts
        for start in range(0, len(part.columns), WIDEST)
    ]
    return [Block(f"{cut.title}, {cut.columns[0].dataset}", _forms(cut)) for cut in cuts]


def _forms(part: SubTable) -> tuple[Form, ...]:
    def filled(between: str, deviations: bool = True) -> Form:
        return _table(part, lambda entry: _typed(entry, part.factor, between, deviations))

    return filled(" "), filled("\n"), filled("\n", deviations=False)


def _typed(entry: Entry, factor: int, between: str, deviations: bool) -> str:
    ours = NOTHING_TYPED
    if entry.ours:
        mark = MARKS.get(entry.ours.place, "")
        shown = entry.ours if deviations else replace(entry.ours, std=math.nan)
        ours = f"{_spread(shown, factor, 1)} {mark}".strip()
    if not entry.published:
        return ours
    return f"{ours}{between}({factor * entry.published.mean:.1f}{_change(entry, factor)})"


def _table(part: SubTable, cell: Callable[[Entry], str]) -> Form:
    headers = ["method", *(column.label for column in part.columns)]
    return headers, [[titled(method), *map(cell, own)] for method, own in part.rows.items()]


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
    ours = _spread(entry.ours, factor, 1) if entry.ours else NOTHING
    around = {"best": "**", "tied": "*"}.get(entry.ours.place if entry.ours else "", "")
    return f"{around}{ours}{around}{_printed(entry, factor)}"


def _printed(entry: Entry, factor: int) -> str:
    """The published number with its digits, and ours less that."""
    if not entry.published:
        return ""
    mean, std = factor * entry.published.mean, factor * entry.published.std
    return f" ({mean:.2f} ± {std:.2f}{_change(entry, factor)})"


def latex(table: SubTable) -> str:
    """Plain tabulars, one a dataset, the published numbers on lines of their own; no package is needed."""
    parts = [_tabular(table.of_dataset(dataset)) for dataset in table.datasets]
    below = "\n\n".join(_escaped(note) for note in notes(table, "latex"))
    return "\n\n".join([f"% {table.title}", *parts, f"{{\\footnotesize\n{below}\n\n}}"]) + "\n"


def _tabular(part: SubTable) -> str:
    wide = len(part.columns)
    top = rf"\multicolumn{{{wide}}}{{c|}}{{{_escaped(part.columns[0].dataset)}}}"
    lines = [
        rf"\begin{{tabular}}{{|l|{'c|' * wide}}}",
        r"\hline",
        rf" & {top} \\",
        _line(["method", *(column.label for column in part.columns)]),
        r"\hline",
    ]
    for method, own in part.rows.items():
        lines.append(_joined([_escaped(titled(method)), *(_set(entry, part.factor) for entry in own)]))
        if any(entry.published for entry in own):
            lines.append(_joined(["", *(_set_below(entry, part.factor) for entry in own)]))
    return "\n".join([*lines, r"\hline", r"\end{tabular}"])


def _line(cells: Sequence[str]) -> str:
    return _joined([_escaped(cell) for cell in cells])


def _joined(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _set(entry: Entry, factor: int) -> str:
    if not entry.ours:
        return "--"
    ours = _typeset(_spread(entry.ours, factor, 1))
    around = {"best": r"\textbf", "tied": r"\underline"}.get(entry.ours.place)
    return f"{around}{{{ours}}}" if around else ours


def _typeset(numbers: str) -> str:
    """With minus signs instead of hyphens."""
    return re.sub(r"-(?=\d)", "$-$", _escaped(numbers))


def _set_below(entry: Entry, factor: int) -> str:
    return rf"{{\scriptsize {_typeset(_printed(entry, factor).strip())}}}" if entry.published else ""


SPECIAL = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
    "~": r"\~{}",
    "^": r"\^{}",
}


def _escaped(text: str) -> str:
    """For LaTeX.

    >>> _escaped("cffl(expel_by=share) 90 % ± 1")
    'cffl(expel\\\\_by=share) 90 \\\\% $\\\\pm$ 1'
    """
    return "".join(SPECIAL.get(letter, f"\\{letter}" if letter in "&%$#_{}" else letter) for letter in text)


def _spread(ours: Standing, factor: int, digits: int) -> str:
    if math.isnan(ours.mean):
        return "?"
    mean = f"{_near(factor * ours.mean, digits):.{digits}f}"
    return mean if math.isnan(ours.std) else f"{mean} ± {factor * ours.std:.{digits}f}"


def _change(entry: Entry, factor: int) -> str:
    known = not math.isnan(entry.difference)
    return f", {_near(factor * entry.difference, 1):+.1f}" if known else ""


def _near(value: float, digits: int) -> float:
    return round(value, digits) + 0.0  # no negative nothing


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
    return "" if math.isnan(value) else round(factor * value, 10)
