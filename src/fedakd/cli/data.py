"""The commands `fedakd data list`, `get` and `check`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from fedakd.data import DATASETS, Source, Verdict, source
from fedakd.data import Progress as Report
from fedakd.data.store import check_roots

app = typer.Typer(
    help="Find, fetch and verify the datasets.",
    epilog="Searched in this order: --data-dir, $FEDAKD_DATA, the user's cache folder, /usr/share/datasets.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help=f"One of: {', '.join(DATASETS)}.", show_default=False)]
Folder = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="FOLDER", help="Look here first, and download to here."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command("list")
def list_datasets(data_dir: Folder = None, as_json: AsJson = False) -> None:
    """Show every dataset, its size, and where it lies on this machine.

    No file is opened, so this is quick; "fedakd data check NAME" verifies every byte.
    """
    check_roots(data_dir)
    if as_json:
        typer.echo(json.dumps([_facts(known, data_dir) for known in DATASETS.values()], indent=2))
    else:
        Console().print(_overview(data_dir))


@app.command()
def get(name: Name, data_dir: Folder = None, as_json: AsJson = False) -> None:
    """Download a dataset unless it is here already, and verify it.

    A download that was cut off continues where it stopped. Files go to --data-dir, else to $FEDAKD_DATA,
    else to the user's cache folder, and appear there only once their checksum is right.
    """
    wanted = source(name)
    was_here = wanted.where(data_dir) is not None
    with _bars() as report:
        dataset = wanted.load(data_dir, progress=report)
    if as_json:
        facts = {"downloaded": not was_here, "origin": dataset.origin}
        typer.echo(json.dumps(_facts(wanted, data_dir) | facts, indent=2))
    else:
        how = "was already here" if was_here else "downloaded"
        typer.echo(f"{name}: {how}, {len(dataset)} rows, from {dataset.origin}")


@app.command()
def check(name: Name, data_dir: Folder = None, as_json: AsJson = False) -> None:
    """Read a dataset in full and give a verdict on each of its files.

    Checksums, lengths, headers and labels are compared with the published ones; nothing is downloaded.
    The exit code is 1 if a file is bad.
    """
    known = source(name)
    check_roots(data_dir)
    verdicts = known.check(data_dir)
    if as_json:
        typer.echo(json.dumps([asdict(verdict) for verdict in verdicts], indent=2))
    else:
        Console().print(_judgement(verdicts))
    bad = [verdict.said for verdict in verdicts if not verdict.ok]
    if bad:
        typer.echo("\n".join(bad), err=True)
        raise typer.Exit(1)


def _facts(known: Source, data_dir: Path | None) -> dict[str, object]:
    names = ("name", "summary", "rows", "shape", "classes")
    return {name: getattr(known, name) for name in names} | {"found": known.where(data_dir)}


def _overview(data_dir: Path | None) -> Table:
    table = Table("name", "rows", "shape", "classes", Column("found in", overflow="fold"))
    for known in DATASETS.values():
        place = known.where(data_dir)
        table.add_row(
            known.name,
            str(known.rows),
            " x ".join(map(str, known.shape)),
            str(known.classes),
            escape(place) if place else "[yellow]not found[/yellow]",
        )
    return table


def _judgement(verdicts: list[Verdict]) -> Table:
    folder = str(Path(verdicts[0].file).parent)
    table = Table(Column("file", no_wrap=True), "verdict", Column("because", overflow="fold"))
    table.title = escape(folder)
    for verdict in verdicts:
        word = "[green]good[/green]" if verdict.ok else "[red]bad[/red]"
        table.add_row(escape(Path(verdict.file).name), word, escape(verdict.said))
    return table


@contextmanager
def _bars() -> Iterator[Report]:
    """A function to report progress to, which draws one bar for each file, on stderr."""
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    bars = Progress(*columns, console=Console(stderr=True))
    tasks: dict[str, TaskID] = {}

    def report(file: str, done: int, total: int | None) -> None:
        if file not in tasks:
            bars.start()  # not before there is something to draw
            tasks[file] = bars.add_task(file, total=total)
        bars.update(tasks[file], completed=done, total=total)

    try:
        yield report
    finally:
        if tasks:
            bars.stop()
