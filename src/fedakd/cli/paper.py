"""The commands `fedakd paper figure1a`, `figure2` and `figure4`: the paper's figures about shift."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedakd.cli.shift import (
    Clients,
    DataDir,
    DatasetName,
    Dims,
    FeatureKind,
    Fraction,
    PartitionText,
    Scale,
    Seed,
    generated,
    telling,
)
from fedakd.errors import PlanError

if TYPE_CHECKING:
    from fedakd.rounds import Round

app = typer.Typer(
    help="Tables and figures of the paper as commands; `fedakd paper list` tells which.", no_args_is_help=True
)
Out = Annotated[Path, typer.Option(help="Where the figure (SVG, PNG, PDF) and its numbers (CSV) go.")]
Workers = Annotated[int | None, typer.Option(min=0, show_default="cores", help="Processes; 0: this one.")]


@app.command()
def figure1a(
    dataset: DatasetName = "fashion-mnist",
    partition: PartitionText = "ics(5)",
    clients: Clients = 10,
    seed: Seed = 0,
    fraction: Fraction = 1.0,
    scale: Scale = 1.0,
    features: FeatureKind = "pca",
    dims: Dims = None,
    out: Out = Path("paper"),
    data_dir: DataDir = None,
) -> None:
    """KL divergence against size, client by client, beside what chance alone would show (Figure 1a)."""
    from rich.console import Console

    from fedakd.shift import of_federation, report
    from fedakd.shift.pictures import draw_sizes
    from fedakd.shift.sentences import overall

    federation = generated(dataset, partition, clients, seed, fraction, data_dir, scale=scale)
    with telling(Console(stderr=True)) as tell:
        options: Any = {"dims": dims, "seed": seed, "cache": out / "features"}
        found = report(of_federation(federation), features, progress=tell, **options)
    draw_sizes(found.sites, found.dims, out / "figure1a")
    _say(overall(found.sites, found.told), out / "figure1a")


@app.command()
def figure2(
    dataset: DatasetName = "fashion-mnist",
    partition: PartitionText = "ics(5)",
    clients: Clients = 10,
    seed: Seed = 0,
    fraction: Fraction = 1.0,
    scale: Scale = 1.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of FedAvg before rows are judged.")] = 5,
    dims: Annotated[int, typer.Option(min=1, help="Principal components of the encoder's output.")] = 10,
    repeats: Annotated[int, typer.Option(min=20, help="Random partings of right and wrong.")] = 100,
    model: Annotated[str, typer.Option(help="cnn, cnn2, cnn3 or mlp.")] = "cnn",
    workers: Workers = None,
    out: Out = Path("paper"),
    data_dir: DataDir = None,
) -> None:
    """Rows a FedAvg model gets right and wrong, client by client, beside everybody's (Figure 2).

    There are few wrong rows, and few rows are always far from many. So rows are also called right and wrong
    at random, in the same numbers; what is said of the paper's claim rests on that.
    """
    import numpy as np
    from rich.console import Console

    from fedakd.models import factory
    from fedakd.shift import halves, wrong
    from fedakd.training import Recipe, Task

    if clients < 2:
        raise PlanError(f"right and wrong rows are compared between clients, at least 2; got {clients}")
    federation = generated(dataset, partition, clients, seed, fraction, data_dir, scale=scale)
    task = Task(factory(model, federation.dataset.x.shape[1:], federation.dataset.classes))
    recipe = Recipe(lr=0.001, optimizer="adam")
    with telling(Console(stderr=True)) as tell:
        options = {"rounds": rounds, "dims": dims, "workers": workers}
        rows = halves.parted(federation, task, recipe, **options, on_round=_told(tell, rounds))  # type: ignore[arg-type]
        rng, names = np.random.default_rng(seed), [str(client) for client in range(clients)]
        said = _every(10, tell)
        found = wrong.compared(names, rows.features, rows.right, rng, repeats=repeats, progress=said)
    _left_out(clients - len(found.clients))
    sizes = [len(part) for part in federation.train]
    shown = sorted({int(np.argmax(sizes)), int(np.argmin(sizes))})
    halves.draw(found, rows, shown, out / "figure2")
    _say(wrong.verdict(found), out / "figure2")


@app.command()
def figure4(
    dataset: DatasetName = "fashion-mnist",
    partition: PartitionText = "ics(5)",
    clients: Clients = 10,
    seed: Seed = 0,
    fraction: Fraction = 1.0,
    scale: Scale = 1.0,
    features: FeatureKind = "vae",
    dims: Dims = None,
    out: Out = Path("paper"),
    data_dir: DataDir = None,
) -> None:
    """Real KL, Theorem 2 as printed, the corrected expansion and random rows, client by client (Figure 4)."""
    import numpy as np
    from rich.console import Console

    from fedakd.shift import feature_map, of_federation
    from fedakd.shift.approximation import approximated, draw, summary

    federation = generated(dataset, partition, clients, seed, fraction, data_dir, scale=scale)
    sites = of_federation(federation)
    with telling(Console(stderr=True)) as tell:
        made = feature_map(sites, features, dims, seed, tell, out / "features")
        tell("comparing the theorems with the exact KL")
        found = approximated(sites, made, np.random.default_rng(seed))
    _left_out(clients - len(found))
    draw(found, out / "figure4")
    _say(summary(found), out / "figure4")


def _left_out(count: int) -> None:
    if count:
        typer.echo(f"{count} clients have too few rows to be compared and are left out", err=True)


def _told(tell: Callable[[str], None], rounds: int) -> Callable[[Round], None]:
    return lambda record: tell(f"FedAvg, round {record.number}/{rounds}")


def _every(step: int, tell: Callable[[str], None]) -> Callable[[int, int], None]:
    return lambda done, total: tell(f"parted at random {done}/{total} times") if done % step == 0 else None


def _say(text: str, stem: Path) -> None:
    typer.echo(text)
    typer.echo(f"written: {stem}.svg, .png, .pdf and .csv")
