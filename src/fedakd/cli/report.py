"""The command `fedakd report`: what was found, as one page or as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Form = Literal["html", "md", "latex", "csv"]
ENDINGS = {"html": "html", "md": "md", "latex": "tex", "csv": "csv"}


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Of `fedakd run`, `fedakd compare` or `fedakd paper`.")
    ],
    form: Annotated[
        Form, typer.Option("--format", help="A page, or its tables as Markdown, LaTeX or CSV.")
    ] = "html",
    out: Annotated[
        Path | None, typer.Option(show_default="FOLDER/report.html", help="The file that is written.")
    ] = None,
) -> None:
    """Write what a run or a comparison found into one file: verdict, tables, charts, cost, audit.

    The page needs nothing but itself: no network, no other file; it can be sent by mail. Its numbers are
    those stored in the folder. A comparison that is not complete is reported as far as it has come.

    Example: fedakd report runs/demo
    """
    from fedakd import report as forms
    from fedakd.compare.results import read
    from fedakd.wire import write

    made = {"html": forms.html, "md": forms.markdown, "latex": forms.latex, "csv": forms.csv}
    results = read(folder)
    text = made[form](results)
    path = out or folder / f"report.{ENDINGS[form]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, text.encode())
    typer.echo(f"written: {path}")
    if form == "csv" and forms.printed(results):
        typer.echo(_beside(folder / "tables.csv", results.command))


def _beside(path: Path, command: str) -> str:
    """Where the published numbers are: one line here is a model, there a method and column."""
    if path.exists():
        return f"ours beside the published: {path}"
    return f"ours beside the published will be in {path}, which this writes when it ends: {command}"
