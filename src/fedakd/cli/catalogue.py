"""The commands that list what there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def methods(as_json: AsJson = False) -> None:
    """List the methods, one line each, with their fields.

    Fields are set in brackets: --method "fedakd(alpha=0.5, temperature=2)".
    """
    from dataclasses import fields

    from fedakd.methods import ABLATIONS, METHODS
    from fedakd.spelling import shown

    rows = []
    for name, method in METHODS.items():
        values = {f.name: getattr(method, f.name) for f in fields(method)}  # type: ignore[arg-type]
        if name in ABLATIONS:
            values = {f.name: values[f.name] for f in fields(method) if values[f.name] != f.default}  # type: ignore[arg-type]
        told = ", ".join(f"{field}={shown(value)}" for field, value in values.items())
        summary = ABLATIONS.get(name, method.summary)
        rows.append({"name": name, "summary": summary, "fields": told, "citation": method.citation})
    show(rows, as_json)


def partitions(as_json: AsJson = False) -> None:
    """List the ways to divide a dataset among clients, one line each, with their fields.

    Fields are set in brackets: --partition "ics(5, mode=ratio)"; the first needs no name.
    """
    from fedakd.partition import PARTITIONS

    rows = [
        {"name": name, "summary": entry.summary, "fields": ", ".join(entry.fields())}
        for name, entry in PARTITIONS.items()
    ]
    show(rows, as_json)


def datasets(as_json: AsJson = False) -> None:
    """List the datasets, one line each; `fedakd data` finds, fetches and verifies them."""
    from fedakd.data import DATASETS

    rows = [
        {
            "name": known.name,
            "summary": known.summary,
            "rows": f"{known.rows:,}",
            "shape": "x".join(map(str, known.shape)),
            "classes": str(known.classes),
        }
        for known in DATASETS.values()
    ]
    show(rows, as_json)


def show(rows: Sequence[dict[str, str]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(list(rows), indent=2))
        return
    from rich.console import Console

    Console().print(grid(list(rows[0]), [list(row.values()) for row in rows]))


def grid(headers: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> Table:
    """A table in which the first column is never folded; numbers stand to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        min_width=min(len(title or ""), 78),
        box=None,
        pad_edge=False,
    )
    for position, header in enumerate(headers):
        numeric = position > 0 and all(numberlike(row[position]) for row in rows)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        rigid = position == 0 or numeric
        table.add_column(header, no_wrap=rigid, overflow="fold", justify=justify, header_style="underline")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def numberlike(cell: str) -> bool:
    return (
        not cell or cell[0].isdigit() or cell[0] in "+-" or cell in ("undefined", "inf", "nan", "reference")
    )
