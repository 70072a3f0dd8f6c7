"""The command `fedakd shift`: how shifted is each site, and how much of that is chance?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedakd.errors import PlanError

if TYPE_CHECKING:
    from rich.console import Console

    from fedakd.federation import Federation
    from fedakd.shift import Report, Sites

DatasetName = Annotated[str, typer.Option("--dataset", help="digits, fashion-mnist or cifar10.")]
PartitionText = Annotated[
    str, typer.Option("--partition", help='How rows go to clients: "ics(5)", "ics(kl=1.5)", pow, "dir(1)".')
]
Clients = Annotated[int, typer.Option(help="Clients in the federation.")]
Seed = Annotated[int, typer.Option(help="Of the partition, the feature map and the random draws.")]
Fraction = Annotated[float, typer.Option(help="Share of the rows given out.")]
Scale = Annotated[float, typer.Option(help="Share of the training rows that leaves; tests stay whole.")]
DataDir = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the dataset's files are.")]
FeatureKind = Annotated[
    str,
    typer.Option(
        help="What is compared: pca (principal components), raw (all features), encoder (what a network's "
        "body makes of a row) or vae (latent means of a variational autoencoder). The last two are trained."
    ),
]
Dims = Annotated[int | None, typer.Option(show_default="10; vae: 100", help="Dimensions of the features.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output instead of tables.")]


def shift(
    dataset: Annotated[
        str | None, typer.Option(show_default="digits", help="digits, fashion-mnist or cifar10.")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(show_default="ics(1)", help='How rows go to clients: "ics(5)", "ics(kl=1.5)", pow.'),
    ] = None,
    clients: Clients = 10,
    seed: Seed = 0,
    fraction: Fraction = 1.0,
    sites: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Instead of a dataset: one CSV or NPZ file for each site."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(show_default="label, if there is one", help="The column of labels in the sites' files."),
    ] = None,
    features: FeatureKind = "pca",
    dims: Dims = None,
    repeats: Annotated[int, typer.Option(min=40, help="Random draws a site is compared with.")] = 99,
    force: Annotated[
        bool, typer.Option("--force", help="Accept a shift that few rows must carry by repeating often.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where figures and tables go.")] = Path("shift"),
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Measure how far each site's inputs and labels are from the pool, and how much of that is chance.

    For a generated federation you also see what was asked of the generator and what came, on the train pool
    and on the test pool. One sentence for each site says what the numbers mean; docs/shift.md says it at
    length. Figures (SVG, PNG, PDF) and tables (CSV) are written to --out.

    Example: fedakd shift --dataset fashion-mnist --partition "ics(5)"
    """
    from rich.console import Console

    from fedakd.shift import of_federation, report

    _check_company(sites, label, bool(dataset or partition or force or data_dir or fraction != 1))
    if sites is None:
        asked = (dataset or "digits", partition or "ics(1)")
        federation = generated(*asked, clients, seed, fraction, data_dir, force)
        chosen = of_federation(federation)
    else:
        federation, chosen = None, _read(sites, label, seed)
    with telling(Console(stderr=True)) as tell:
        options: Any = {"dims": dims, "seed": seed, "repeats": repeats, "cache": out / "features"}
        found = report(chosen, features, progress=tell, **options)
    written = _write(federation, found, out)
    if as_json:
        told = found.to_dict(federation.shifts if federation else None)
        typer.echo(json.dumps(told, indent=2, allow_nan=False))
    else:
        _print(Console(), federation, found)
        Console().print(f"written: {', '.join(written)} in {out}", markup=False, highlight=False)


def generated(
    dataset: str,
    partition: str,
    clients: int,
    seed: int,
    fraction: float,
    data_dir: Path | None,
    force: bool = False,
    scale: float = 1.0,
) -> Federation:
    """The federation that was asked for."""
    from dataclasses import replace

    from fedakd.data import load
    from fedakd.federation import federate
    from fedakd.partition import GaussianShift, parse

    wanted = parse(partition)
    if force and not isinstance(wanted, GaussianShift):
        raise PlanError(f"--force is about covariate shift, which {partition} has none of; leave it out")
    if force and isinstance(wanted, GaussianShift):
        wanted = replace(wanted, force=True)
    shares = {"fraction": fraction, "scale": scale}
    return federate(load(dataset, data_dir), wanted, clients, **shares, seed=seed)  # type: ignore[arg-type]


def _check_company(sites: Path | None, label: str | None, generating: bool) -> None:
    """Options that do not go together: sites are read or generated, not both."""
    if sites is None and label is not None:
        raise PlanError("--label is about the files of --sites; leave it out, or name their folder")
    if sites is not None and generating:
        others = "--dataset, --partition, --fraction, --data-dir and --force"
        raise PlanError(f"--sites are sites as they are; leave out {others}")


def _read(folder: Path, label: str | None, seed: int) -> Sites:
    import numpy as np

    from fedakd.data.sites import load_sites
    from fedakd.shift import of_groups

    table = load_sites(folder, label)
    return of_groups(table, table.groups.tolist(), np.random.default_rng(seed))


@contextmanager
def telling(console: Console) -> Iterator[Callable[[str], None]]:
    """A status line while something long goes on; lines one after another, where it is no terminal."""
    if not console.is_terminal:
        yield lambda what: console.print(what, markup=False, highlight=False)
        return
    from rich.text import Text

    with console.status("beginning") as status:
        yield lambda what: status.update(Text(what))


def _write(federation: Federation | None, found: Report, out: Path) -> list[str]:
    from fedakd.shift.pictures import draw_generated, draw_sizes

    draw_sizes(found.sites, found.dims, out / "kl-size")
    if federation is None or not federation.shifts:
        return ["kl-size"]
    draw_generated(federation.shifts, out / "generator")
    return ["kl-size", "generator"]


def _print(console: Console, federation: Federation | None, found: Report) -> None:
    from fedakd.cli.catalogue import put
    from fedakd.shift import tables
    from fedakd.shift.sentences import overall, sentence

    if federation is not None and federation.shifts:
        _print_asked(console, federation)
    title = f"{found.dataset}: {found.kind} features, M = {found.dims}, {found.pool} rows in the pool"
    put(console, tables.table(found.sites), tables.short(found.sites), title=title)
    plain: Any = {"markup": False, "highlight": False}
    console.print(tables.LEGEND, style="dim", **plain)
    for line in (*map(sentence, found.sites), overall(found.sites, found.told)):
        console.print(f"- {line}", **plain)


def _print_asked(console: Console, federation: Federation) -> None:
    """What was asked of the generator and what came: in the pools, and in the rows drawn."""
    from fedakd.audit import audit, blocks, legends
    from fedakd.cli.catalogue import put

    found = audit(federation)
    for form in blocks(found):
        put(console, form, title=f"what was asked of {federation.partition}, and what came")
    for legend in legends(found):
        console.print(legend, style="dim", markup=False, highlight=False)
    for warning in federation.warnings:
        console.print(f"warning: {warning}", markup=False, highlight=False)
