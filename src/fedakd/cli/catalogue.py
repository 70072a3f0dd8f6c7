"""The commands that list what there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fedakd.method import Method

MethodName = Annotated[str | None, typer.Argument(metavar="NAME", help="Show this method in full.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def methods(name: MethodName = None, as_json: AsJson = False) -> None:
    """List the methods, or show one: what it does, where it comes from and how sure we are of it.

    Fields are set in brackets, --method "fedakd(alpha=0.5, temperature=2)". Defaults are the authors' values;
    "cffl(preset=paper)" has those of the KDD 2025 paper, "cffl(preset=released)" those of its published code,
    and --preset paper or released of `run` chooses them for all methods. "official" methods follow published
    code or texts, "reconstructed" ones had to be rebuilt; `fedakd methods cffl` lists every deviation.
    """
    from fedakd.errors import PlanError, unknown
    from fedakd.methods import ABLATIONS, METHODS

    if name is not None and name.lower() not in METHODS:
        raise PlanError(unknown("method", name, METHODS))
    chosen = METHODS if name is None else {name.lower(): METHODS[name.lower()]}
    rows = [
        {
            "name": one,
            "summary": ABLATIONS.get(one, method.summary),
            "confidence": method.confidence,
            "citation": method.citation,
            "fields": _told(method, only_changed=one in ABLATIONS),
        }
        for one, method in chosen.items()
    ]
    if as_json:
        show(rows, as_json)
    elif name is None:
        _list(rows)
    else:
        _explain(name.lower(), METHODS[name.lower()])


def _told(method: Method, only_changed: bool) -> str:
    from fedakd.methods import spelled_fields
    from fedakd.spelling import shown

    known = spelled_fields(method).items()
    values = {name: (getattr(method, name), one.default) for name, one in known}
    told = {name: own for name, (own, usual) in values.items() if not only_changed or own != usual}
    return ", ".join(f"{name}={shown(value)}" for name, value in told.items())


def _list(rows: Sequence[dict[str, str]]) -> None:
    """Names under each other, each with a line or two about it: a table would be too wide."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console()
    for row in rows:
        head = Text(f"{row['name']:<20}", style="bold") + Text(f"{row['confidence']:<15}{row['citation']}")
        console.print(head, Padding(Text(row["summary"]), (0, 0, 0, 4)), sep="\n")
        if row["fields"]:
            console.print(Padding(Text(row["fields"], style="dim"), (0, 0, 0, 4)))


def _explain(name: str, method: Method) -> None:
    """What the method's own file says, and its fields in all presets."""
    import sys

    from rich.console import Console

    from fedakd.methods import PRESETS, by_preset

    console = Console()
    console.print((sys.modules[type(method).__module__].__doc__ or "").strip(), markup=False, highlight=False)
    if lines := [[field, *values] for field, values in by_preset(name).items()]:
        console.print("", grid(["field", *PRESETS], lines), sep="\n")


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


Form = tuple[Sequence[str], Sequence[Sequence[str]]]  # headers and rows


def put(console: Console, *forms: Form, title: str | None = None, whole: bool = False) -> bool:
    """Prints the first form of a table that fits, or else the last with its first column folded.

    A number is never cut; if that cannot be had, or the table is to be whole, nothing is printed.
    """
    for fold in (False,) if whole else (False, True):
        for headers, rows in forms:
            table = grid(headers, rows, title, fold)
            least = table.__rich_measure__(console, console.options)
            if (least.minimum if fold else least.maximum) <= console.width:
                console.print(table)
                return True
    if not whole:
        console.print(table, crop=False)
    return False


def grid(
    headers: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None, fold: bool = False
) -> Table:
    """A table in which the first column is not folded unless asked; numbers stand to the right."""
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
        rigid = numeric or (position == 0 and not fold)
        table.add_column(header, no_wrap=rigid, overflow="fold", justify=justify, header_style="underline")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def numberlike(cell: str) -> bool:
    return (
        not cell or cell[0].isdigit() or cell[0] in "+-?" or cell in ("undefined", "inf", "nan", "reference")
    )
