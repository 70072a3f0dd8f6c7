"""Observed contraction over heterogeneity, local epochs and methods, with Theorem 3's constants beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedakd import figures
from fedakd.methods import parse
from fedakd.methods.fedakd import FedAKD
from fedakd.theory.contraction import Course, Fit, course, fitted, full_batch
from fedakd.theory.convergence import Constants, measured, rate
from fedakd.theory.logistic import federation


@dataclass(frozen=True)
class Setting:
    """A family of logistic federations, and how clients train."""

    clients: int = 4
    dims: int = 5
    rows: int = 120  # of the largest client; client k has rows / k
    decay: float = 0.1
    lr: float = 0.5
    batch_size: int | None = None  # None: all rows
    rounds: int = 60
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Cell:
    heterogeneity: float
    epochs: int
    method: str
    course: Course
    fit: Fit
    constants: Constants | None  # of the round kindest to Theorem 3; None for methods it is not about


def surveyed(
    setting: Setting,
    heterogeneities: Sequence[float],
    epochs: Sequence[int],
    methods: Sequence[str],
    on_round: Callable[[], None] | None = None,
) -> Iterator[Cell]:
    """Every method on every federation; each heterogeneity stretches the same random numbers."""
    for heterogeneity in heterogeneities:
        for count in epochs:
            for method in methods:
                yield _cell(setting, heterogeneity, count, method, on_round)


def _cell(
    setting: Setting, heterogeneity: float, epochs: int, text: str, on_round: Callable[[], None] | None
) -> Cell:
    rng, method = np.random.default_rng(setting.seed), parse(text)
    problem = federation(setting.clients, setting.dims, setting.rows, heterogeneity, setting.decay, rng)
    recipe = full_batch(problem, epochs, setting.lr)
    if setting.batch_size is not None:
        recipe = replace(recipe, batch_size=setting.batch_size)
    seen = course(problem, method, recipe, setting.rounds, setting.seed, on_round)
    distils = isinstance(method, FedAKD) and min(method.alpha, method.beta) > 0
    found = measured(problem, method, seen) if isinstance(method, FedAKD) and distils else []
    kindest = max(found, key=lambda one: rate(one).r, default=None)
    return Cell(heterogeneity, epochs, text, seen, fitted(seen.gaps), kindest)


def write(cells: Sequence[Cell], stem: Path) -> None:
    """The gaps as a figure, one panel a federation and number of epochs, and as CSV."""
    panels = list(dict.fromkeys((cell.heterogeneity, cell.epochs) for cell in cells))
    across = len({epochs for _, epochs in panels})
    with figures.drawn(stem, columns=across, rows=-(-len(panels) // across), size=(4.6, 3.4)) as axes:
        for place, (heterogeneity, epochs) in zip(axes, panels, strict=False):
            for cell in cells:
                if (cell.heterogeneity, cell.epochs) == (heterogeneity, epochs):
                    place.semilogy(np.maximum(cell.course.gaps, 1e-16), label=cell.method, linewidth=1.3)
            steps = f"{epochs} local epoch{'s' * (epochs > 1)}"
            place.set_title(f"heterogeneity {heterogeneity:g}, {steps}", fontsize=10)
            place.set(xlabel="round", ylabel="F(w_g) - F(w*)")
        handles, labels = axes[0].get_legend_handles_labels()
        figure = axes[0].get_figure()
        assert figure is not None
        figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9)
    figures.write_csv(stem.with_suffix(".csv"), [line for cell in cells for line in _lines(cell)])


def _lines(cell: Cell) -> list[dict[str, object]]:
    about = {"heterogeneity": cell.heterogeneity, "epochs": cell.epochs, "method": cell.method}
    return [{**about, "round": t, "gap": float(gap)} for t, gap in enumerate(cell.course.gaps)]
