"""Figures on disk: as SVG, PNG and PDF, with the numbers they show as CSV beside them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMS = ("svg", "png", "pdf")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # told apart by all
STYLE: dict[str, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.hashsalt": "fedakd",  # the same numbers give the same bytes
    "figure.constrained_layout.use": True,
}


@contextmanager
def drawn(
    stem: Path, columns: int = 1, rows: int = 1, size: tuple[float, float] = (6.0, 4.0)
) -> Iterator[list[Axes]]:
    """Axes to draw on; the figure is written to `stem` with each suffix when the block ends well."""
    import matplotlib
    from cycler import cycler
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: Any = {**STYLE, "axes.prop_cycle": cycler(color=COLOURS)}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows))
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
        yield list(axes.flat)
        _write(figure, stem)


def _write(figure: Figure, stem: Path) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    undated: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    for form in FORMS:
        figure.savefig(stem.with_suffix(f".{form}"), dpi=150, metadata=undated.get(form))


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """One line a row, under the names of the first row's fields."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
