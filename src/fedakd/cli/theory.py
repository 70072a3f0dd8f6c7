"""The commands `fedakd theory gaussian`, `fisher`, `sampling` and `convergence`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedakd.cli.catalogue import AsJson, put
from fedakd.errors import PlanError

if TYPE_CHECKING:
    from rich.console import Console

    from fedakd.theory.survey import Cell

app = typer.Typer(
    help="Check the paper's three theorems: as printed, corrected, and against what is observed.",
    no_args_is_help=True,
)

SIZES = [0.05, 0.1, 0.2, 0.4]
METHODS = [
    "fedavg",
    "fedakd(alpha=0.5, beta=0.5)",
    "fedakd(alpha=1, beta=1)",
    "fedakd(alpha=2, beta=2)",
    "fedakd(alpha=2, beta=0.5)",
    "fedakd(alpha=1, beta=1, select=all)",
]
HEADERS = {
    "omega1": "|Omega_1|",
    "omega2": "|Omega_2|",
    "r_1": "r_1",
    "r_2": "r_2",
    "gain": "aB",
    "curvature": "L term",  # -L B^2/2 reach^2
    "error": "r terms",  # -a (r_1 + r_2) B
    "promise": "1-2mu r",
    "heterogeneity": "het.",
}
UNTOLD = ("alpha", "beta", "a", "reach")  # of Theorem 3, on a terminal: they have no room
Dims = Annotated[list[int], typer.Option("--dims", min=1, help="Dimension M; repeatable.")]
Sizes = Annotated[
    list[float],
    typer.Option("--size", min=1e-3, max=0.99, help="Perturbation, in standard deviations; repeatable."),
]
Seed = Annotated[int, typer.Option(min=0, help="Of everything random.")]


@app.command()
def gaussian(dims: Dims = [1, 5, 20], size: Sizes = SIZES, seed: Seed = 0, as_json: AsJson = False) -> None:  # noqa: B006
    """Theorem 2: the divergence of two normal distributions, exact, as printed and corrected.

    A random base distribution is moved in a random direction by each size. The corrected expansion's error
    falls with the square of the size (relative to the divergence), the printed one's does not vanish.
    """
    import numpy as np

    from fedakd.theory import gaussian as theory

    table = theory.compared(dims, size, np.random.default_rng(seed))
    errors = [{"theorem2_error": row.theorem2_error, "expansion_error": row.expansion_error} for row in table]
    rows = [{**asdict(row), **error} for row, error in zip(table, errors, strict=True)]
    says = [f"{place}: {what}" for place, what in theory.DEVIATIONS.items()]
    _tell(
        "Theorem 2 and KL(p || q)", rows, ["As printed, Theorem 2 deviates in three places:", *says], as_json
    )


@app.command()
def fisher(size: Sizes = SIZES, seed: Seed = 0, as_json: AsJson = False) -> None:
    """Theorem 1: the divergence within a smooth family from its Fisher information.

    On a normal and on a logistic family, whose divergence is known. The column `factor` is what should stand
    before delta' (grad I delta) delta, where the paper has 1/2; it depends on the family's parameters.
    """
    from fedakd.theory.families import examples

    rows = [
        {
            "family": one.family,
            "size": one.size,
            "exact": one.exact,
            "theorem1": one.terms.printed,
            "corrected": one.terms.corrected,
            "theorem1_error": one.terms.printed / one.exact - 1,
            "corrected_error": one.terms.corrected / one.exact - 1,
            "factor": one.terms.factor,
        }
        for one in examples(size, seed)
    ]
    says = [
        "As printed, the cubic term is 1/2 delta'(grad I delta)delta. Right in any parametrisation is "
        "1/4 delta'(grad I delta)delta + 1/12 E[(delta' score)^3].",
        "Where the score's third moment is known this is a multiple of the first: 1/6 for mean parameters "
        "(a normal covariance), 1/3 for natural ones (logistic regression).",
    ]
    _tell("Theorem 1 and KL(p_omega+delta || p_omega)", rows, says, as_json)


@app.command()
def sampling(
    dims: Dims = [3, 10, 30],  # noqa: B006
    rows: Annotated[
        list[int], typer.Option("--rows", min=2, help="Rows A a distribution is fitted from; repeatable.")
    ] = [60, 600, 6000],  # noqa: B006
    repeats: Annotated[int, typer.Option(min=2, help="Simulated fits.")] = 300,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """M(M+3)/4A: what fitting a distribution from A rows adds to its divergence, against simulation.

    The leading term holds for A much above M; `exact`, a sum of digammas, for every A above M.
    """
    import numpy as np

    from fedakd.theory import gaussian as theory

    rng, lines = np.random.default_rng(seed), []
    for m in dims:
        for a in (a for a in rows if a > m):
            mean, error = theory.simulated(m, a, repeats, rng)
            formulas = {"leading": theory.sampling(m, a), "exact": theory.sampling_exact(m, a)}
            line = {"dims": m, "rows": a, **formulas, "simulated": mean, "standard_error": error}
            lines.append({**line, "leading_error": formulas["leading"] / mean - 1})
    if not lines:
        raise PlanError(f"a fit needs more rows than dimensions, got rows {rows} and dims {dims}")
    says = ["The statement's M(M+3)/4A is right for many rows; the appendix's M(M+4)/4A is a slip."]
    _tell("KL(fit from A rows || the truth)", lines, says, as_json)


@app.command()
def convergence(
    heterogeneity: Annotated[
        list[float], typer.Option(min=0, help="How far clients differ, 0: not at all; repeatable.")
    ] = [0.0, 1.0],  # noqa: B006
    epochs: Annotated[list[int], typer.Option(min=1, help="Local epochs a round; repeatable.")] = [1, 5],  # noqa: B006
    method: Annotated[
        list[str], typer.Option("--method", help="With its fields; repeatable.", show_default="six of them")
    ] = METHODS,
    rounds: Annotated[int, typer.Option(min=8, help="Rounds of training.")] = 60,
    clients: Annotated[int, typer.Option(min=1, help="Client k has 1/k of the largest's rows.")] = 4,
    dims: Annotated[int, typer.Option(min=1, help="Columns of the inputs, beside a constant one.")] = 5,
    rows: Annotated[int, typer.Option(min=2, help="Rows of the largest client.")] = 120,
    decay: Annotated[float, typer.Option(help="L2 penalty, above 0; part of the objective.")] = 0.1,
    lr: Annotated[float, typer.Option(min=1e-9, help="Learning rate of plain SGD.")] = 0.5,
    batch_size: Annotated[
        int | None, typer.Option(min=1, show_default="all rows", help="Rows a step.")
    ] = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for the figure and its numbers.")] = Path("theory"),
    as_json: AsJson = False,
) -> None:
    """Theorem 3: its constants and its r on a logistic federation, and the contraction that is observed.

    The federation's optimum is known to 1e-10, so the gap F(w_g) - F(w*) of each round is too. It is fitted
    by floor + (first gap - floor) rate^t. A full-batch epoch is one step.
    """
    from rich.console import Console

    from fedakd.theory.survey import Setting, surveyed, write

    setting = Setting(clients, dims, rows, decay, lr, batch_size, rounds, seed)
    total = len(heterogeneity) * len(epochs) * len(method) * rounds
    with _bar(total) as step:
        cells = list(surveyed(setting, heterogeneity, epochs, method, step))
    write(cells, out / "observed-gap")
    if as_json:
        from fedakd.audit import finite

        typer.echo(json.dumps(finite(_report(cells)), indent=2, allow_nan=False))
        return
    console = Console()
    _explain(console, cells)
    _table(console, "Observed: gap ~ floor + (first gap - floor) rate^t", [_observed(cell) for cell in cells])
    if any(cell.course.gaps.min() < cell.fit.floor / 2 for cell in cells):
        console.print("Where the lowest gap is below the floor, w_g came near the optimum and left it again.")
    console.print(f"figure and numbers: {out / 'observed-gap'}.svg, .png, .pdf, .csv", soft_wrap=True)


def _explain(console: Console, cells: Sequence[Cell]) -> None:
    """Theorem 3 at the last federation and the first number of epochs, one line for each FedAKD."""
    from fedakd.theory.convergence import rate, why

    at = (cells[-1].heterogeneity, cells[0].epochs)
    here = {c.method: c.constants for c in cells if c.constants and (c.heterogeneity, c.epochs) == at}
    if not here:
        return
    about = f"heterogeneity {at[0]:g}, {at[1]} epoch{'s' * (at[1] > 1)}, the round kindest to the theorem"
    _table(console, f"Theorem 3's constants: {about}", [_named(m, asdict(c)) for m, c in here.items()])
    _table(console, "Theorem 3's r, term by term", [_named(m, asdict(rate(c))) for m, c in here.items()])
    name, kindest = max(here.items(), key=lambda pair: rate(pair[1]).r)
    console.print(f"Why r cannot be positive, with the numbers of {name}:", highlight=False)
    for line in why(kindest):
        console.print(f"- {line}", highlight=False)
    console.print()


def _named(method: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "method": method,
        **{name: value for name, value in values.items() if name not in UNTOLD},
    }


def _observed(cell: Cell) -> dict[str, Any]:
    gaps = cell.course.gaps
    return {
        "method": cell.method,
        "heterogeneity": cell.heterogeneity,
        "epochs": cell.epochs,
        "rate": cell.fit.rate,
        "floor": cell.fit.floor,
        "first_gap": float(gaps[0]),
        "lowest_gap": float(gaps.min()),
        "last_gap": float(gaps[-1]),
    }


def _report(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    from fedakd.theory.convergence import rate

    found = []
    for cell in cells:
        known = cell.constants
        theorem = {"constants": asdict(known), "rate": asdict(rate(known))} if known else None
        found.append({**_observed(cell), "theorem3": theorem, "gaps": cell.course.gaps.tolist()})
    return found


def _tell(title: str, rows: Sequence[Mapping[str, Any]], says: Sequence[str], as_json: bool) -> None:
    from rich.console import Console

    if as_json:
        from fedakd.audit import finite

        told = {"rows": [dict(row) for row in rows], "says": list(says)}
        typer.echo(json.dumps(finite(told), indent=2, allow_nan=False))
        return
    console = Console()
    _table(console, title, rows)
    for line in says:
        console.print(line, highlight=False, markup=False)


def _table(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    headers = [HEADERS.get(name, name.replace("_", " ")) for name in rows[0]]
    put(console, (headers, [[_cell(name, row[name]) for name in row] for row in rows]), title=title)
    console.print()


def _cell(name: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{100 * value:+.2f} %" if name.endswith("_error") and name != "standard_error" else f"{value:.4g}"


@contextmanager
def _bar(total: int) -> Iterator[Callable[[], None]]:
    """A function to call after each round; a bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("rounds", total=total)
        yield lambda: progress.advance(task)
