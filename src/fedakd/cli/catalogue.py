"""The commands that list what there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from fedakd.method import Method

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def methods(as_json: AsJson = False) -> None:
    """List the methods: what they do, their fields, whether they follow published code, where they come from.

    Fields are set in brackets: --method "fedakd(alpha=0.5, temperature=2)". A method's default is what its
    authors define; "cffl(preset=paper)" has the values of the KDD 2025 paper, and "cffl(preset=released)"
    those of the code published with it. --preset paper and released of `run` choose them for all methods.
    """
    from fedakd.methods import ABLATIONS, METHODS

    rows = [
        {
            "name": name,
            "summary": ABLATIONS.get(name, method.summary),
            "confidence": method.confidence,
            "citation": method.citation,
            "fields": _told(method, only_changed=name in ABLATIONS),
        }
        for name, method in METHODS.items()
    ]
    show(rows, as_json)


def _told(method: Method, only_changed: bool) -> str:
    from fedakd.methods import spelled_fields
    from fedakd.spelling import shown

    known = spelled_fields(method).items()
    values = {name: (getattr(method, name), one.default) for name, one in known}
    told = {name: own for name, (own, usual) in values.items() if not only_changed or own != usual}
    return ", ".join(f"{name}={shown(value)}" for name, value in told.items())


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
