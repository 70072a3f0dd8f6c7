"""The commands `fedakd paper figure1a`, `figure2` and `figure4`: the paper's figures about shift."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedakd.cli.seconds import announce_fitting, announce_rounds
from fedakd.cli.seeds import Tell, conclude, each_seed, ground
from fedakd.cli.shift import Clients, DataDir, DatasetName, Dims, FeatureKind, PartitionText, Scale
from fedakd.errors import PlanError

if TYPE_CHECKING:
    from fedakd.federation import Federation
    from fedakd.plan import Plan
    from fedakd.rounds import Round
    from fedakd.shift import Report
    from fedakd.shift.approximation import Approximated
    from fedakd.shift.halves import Parted
    from fedakd.shift.wrong import RightWrong

app = typer.Typer(
    help="Tables and figures of the paper as commands; `fedakd paper list` tells which.", no_args_is_help=True
)
PresetName = Annotated[
    str,
    typer.Option(
        "--preset",
        help="tuned; paper: what the paper says of rows and recipe; released: the published generator, which "
        "gives clients consecutive slices of sorted rows.",
    ),
]
FirstSeed = Annotated[
    int, typer.Option("--seed", help="Of the partition, the feature map and the random draws; the first one.")
]
Seeds = Annotated[
    int, typer.Option(min=1, help="How many, from --seed on; each draws and measures everything anew.")
]
Fraction = Annotated[
    float | None,
    typer.Option(show_default="the preset's, 1 or 0.5", help="Share of the rows given out."),
]
Out = Annotated[Path, typer.Option(help="Where the figure (SVG, PNG, PDF) and its numbers (CSV) go.")]
Workers = Annotated[int | None, typer.Option(min=0, show_default="cores", help="Processes; 0: this one.")]


@app.command()
def figure1a(
    dataset: DatasetName = "fashion-mnist",
    partition: PartitionText = "ics(5)",
    clients: Clients = 10,
    seed: FirstSeed = 0,
    seeds: Seeds = 1,
    preset: PresetName = "tuned",
    fraction: Fraction = None,
    scale: Scale = 1.0,
    features: FeatureKind = "pca",
    dims: Dims = None,
    out: Out = Path("paper"),
    data_dir: DataDir = None,
) -> None:
    """KL divergence against size, client by client, beside what chance alone would show (Figure 1a).

    The first seed is drawn; the numbers of all seeds are in the CSV, each seed's when it is finished.
    """
    from fedakd.shift import of_federation, report
    from fedakd.shift.pictures import draw_sizes, write_sizes
    from fedakd.shift.sentences import over_seeds, overall

    rows = {"dataset": dataset, "partition": partition, "clients": clients}
    asked = ground(preset, seed, seeds, data_dir, **rows, fraction=fraction, scale=scale)
    announce_fitting(asked, of_federation(asked.first), features, dims)
    stem = out / "figure1a"

    def measured(federation: Federation, tell: Tell) -> Report:
        options: Any = {"dims": dims, "seed": federation.seed, "cache": out / "features"}
        return report(of_federation(federation), features, progress=tell, **options)

    def keep(found: Mapping[int, Report]) -> None:
        if len(found) == 1:
            draw_sizes(found[seed].sites, found[seed].dims, stem)
        write_sizes({own: one.sites for own, one in found.items()}, stem)

    found = each_seed(asked, measured, keep)
    sites = {own: one.sites for own, one in found.items()}
    conclude(found, lambda one: overall(one.sites, one.told), lambda _: over_seeds(sites), stem)


@app.command()
def figure2(
    dataset: DatasetName = "fashion-mnist",
    partition: PartitionText = "ics(5)",
    clients: Clients = 10,
    seed: FirstSeed = 0,
    seeds: Seeds = 1,
    preset: PresetName = "tuned",
    fraction: Fraction = None,
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
    at random, in the same numbers; what is said of the paper's claim rests on that. Clients are drawn for
    the first seed, the claim for all seeds; the CSV gets each seed's numbers when it is finished.
    """
    from fedakd.shift import halves, wrong

    if clients < 2:
        raise PlanError(f"right and wrong rows are compared between clients, at least 2; got {clients}")
    rows = {"dataset": dataset, "partition": partition, "clients": clients, "model": model, "rounds": rounds}
    asked = ground(preset, seed, seeds, data_dir, **rows, fraction=fraction, scale=scale)
    announce_rounds(asked, workers, dims, repeats)
    stem, shown = out / "figure2", _largest_and_smallest(asked.first)
    first: list[Parted] = []  # its densities are drawn; those of other seeds need not stay in memory

    def judged(federation: Federation, tell: Tell) -> RightWrong:
        parted = _parted(asked.plan, federation, dims, workers, tell)
        first.extend([] if first else [parted])
        return halves.judged(parted, federation.seed, repeats, _every(10, tell))

    def keep(found: Mapping[int, RightWrong]) -> None:
        halves.draw(found, first[0], shown, stem)

    found = each_seed(asked, judged, keep)
    _left_out({own: clients - len(one.clients) for own, one in found.items()})
    conclude(found, wrong.verdict, wrong.over_seeds, stem)


def _parted(plan: Plan, federation: Federation, dims: int, workers: int | None, tell: Tell) -> Parted:
    """The federation's rows, parted by what the plan's FedAvg gets right and wrong after its rounds."""
    from fedakd.shift import halves

    task, rounds = halves.task_of(federation, plan.model), plan.rounds
    told = _told(tell, rounds)
    return halves.parted(
        federation, task, plan.recipe, rounds=rounds, dims=dims, workers=workers, on_round=told
    )


@app.command()
def figure4(
    dataset: DatasetName = "fashion-mnist",
    partition: PartitionText = "ics(5)",
    clients: Clients = 10,
    seed: FirstSeed = 0,
    seeds: Seeds = 1,
    preset: PresetName = "tuned",
    fraction: Fraction = None,
    scale: Scale = 1.0,
    features: FeatureKind = "vae",
    dims: Dims = None,
    out: Out = Path("paper"),
    data_dir: DataDir = None,
) -> None:
    """Real KL, Theorem 2 as printed, the corrected expansion and random rows, client by client (Figure 4).

    The first seed is drawn; the numbers of all seeds are in the CSV, each seed's when it is finished.
    """
    import numpy as np

    from fedakd.shift import feature_map, of_federation
    from fedakd.shift.approximation import approximated, draw, over_seeds, summary, write

    rows = {"dataset": dataset, "partition": partition, "clients": clients}
    asked = ground(preset, seed, seeds, data_dir, **rows, fraction=fraction, scale=scale)
    announce_fitting(asked, of_federation(asked.first), features, dims)
    stem = out / "figure4"

    def compared(federation: Federation, tell: Tell) -> list[Approximated]:
        sites = of_federation(federation)
        made = feature_map(sites, features, dims, federation.seed, tell, out / "features")
        tell("comparing the theorems with the exact KL")
        return approximated(sites, made, np.random.default_rng(federation.seed))

    def keep(found: Mapping[int, list[Approximated]]) -> None:
        write(found, stem)
        if len(found) == 1:
            draw(found[seed], stem)

    found = each_seed(asked, compared, keep)
    _left_out({own: clients - len(one) for own, one in found.items()})
    conclude(found, summary, over_seeds, stem)


def _largest_and_smallest(federation: Federation) -> list[int]:
    import numpy as np

    sizes = [len(part) for part in federation.train]
    return sorted({int(np.argmax(sizes)), int(np.argmin(sizes))})


def _left_out(counts: Mapping[int, int]) -> None:
    for seed, count in counts.items():
        if count:
            of = "" if len(counts) == 1 else f"seed {seed}: "
            typer.echo(f"{of}{count} clients have too few rows to be compared and are left out", err=True)


def _told(tell: Tell, rounds: int) -> Callable[[Round], None]:
    return lambda record: tell(f"FedAvg, round {record.number}/{rounds}")


def _every(step: int, tell: Tell) -> Callable[[int, int], None]:
    return lambda done, total: tell(f"parted at random {done}/{total} times") if done % step == 0 else None
