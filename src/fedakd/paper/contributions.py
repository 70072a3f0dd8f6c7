"""Figure 1 b-e: what methods hold clients to have contributed, against what the clients can do alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from fedakd import figures
from fedakd.compare.results import Results, Setting
from fedakd.correlation import cf_coefficient, cf_interval
from fedakd.errors import PlanError
from fedakd.intervals import Interval
from fedakd.plan import REFERENCE
from fedakd.summary import accuracies, named

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TELLING = ("fedavg", "cffl", "cgsv", "fedave", "fedsac")  # methods that say what clients contributed
MARKERS = "osD^v<>pPX*h"  # one a seed


@dataclass(frozen=True)
class Held:
    """One method and seed: its clients alone, and what they are held to have contributed in the end."""

    setting: Setting
    method: str
    seed: int
    alone: tuple[float, ...]
    contributions: tuple[float, ...]

    @property
    def known(self) -> list[tuple[int, float, float]]:
        """Client, accuracy alone and contribution, of clients that have both."""
        pairs = enumerate(zip(self.alone, self.contributions, strict=True))
        return [(client, *pair) for client, pair in pairs if math.isfinite(sum(pair))]

    @property
    def r(self) -> float:
        """Pearson's correlation over the clients; nan if all are alike."""
        return cf_coefficient(*self._axes()) / 100

    @property
    def interval(self) -> Interval:
        """95 %, by drawing the clients again."""
        low, high = cf_interval(*self._axes(), rng=np.random.default_rng(self.seed))
        return low / 100, high / 100

    def _axes(self) -> tuple[list[float], list[float]]:
        return [alone for _, alone, _ in self.known], [held for _, _, held in self.known]


def held(results: Results) -> list[Held]:
    """Every method and seed that says what clients contributed, by setting and method."""
    return [one for setting in results.settings for one in _held(setting)]


def _held(setting: Setting) -> list[Held]:
    alone = {cell.seed: accuracies(cell, "personal") for cell in setting.cells if cell.method == REFERENCE}
    said = [(cell, cell.rounds[-1].contributions) for cell in setting.cells if cell.seed in alone]
    order = list(setting.plan.methods)
    found = [
        Held(setting, cell.method, cell.seed, tuple(alone[cell.seed]), tuple(shares))
        for cell, shares in said
        if shares is not None
    ]
    return sorted(found, key=lambda one: (order.index(one.method), one.seed))


def draw_contributions(results: Results, stem: Path) -> list[dict[str, Any]]:
    """One panel a method, a marker a seed, a row of panels for each setting; returns the rows of its CSV."""
    found = held(results)
    if not found:
        raise PlanError(
            "no method of these results says what clients contributed, or standalone is not done; "
            f"those that do: {', '.join(TELLING)}"
        )
    panels = [list(own) for _, own in groupby(found, key=lambda one: (id(one.setting), one.method))]
    lines = [list(own) for _, own in groupby(panels, key=lambda own: id(own[0].setting))]
    wide = max(map(len, lines))
    with figures.drawn(stem, columns=wide, rows=len(lines), size=(3.3, 3.5)) as axes:
        for row, line in enumerate(lines):
            own_axes = axes[row * wide : (row + 1) * wide]
            for place, own in zip(own_axes, line, strict=False):
                _panel(place, own)
            for unused in own_axes[len(line) :]:
                unused.set_axis_off()
            label = f"{line[0][0].setting.label}\n" if len(lines) > 1 else ""
            own_axes[0].set_ylabel(f"{label}contribution, last round")
        _legend(axes, max(panels, key=len))
    rows = contribution_rows(found)
    figures.write_csv(stem.with_suffix(".csv"), rows)
    return rows


def _panel(axes: Axes, own: Sequence[Held]) -> None:
    for place, one in enumerate(own):
        alone, shares = [100 * a for _, a, _ in one.known], [share for _, _, share in one.known]
        colour = figures.COLOURS[place % len(figures.COLOURS)]
        style: Any = {"marker": MARKERS[place % len(MARKERS)], "color": colour, "alpha": 0.75}
        axes.scatter(alone, shares, s=26, label=f"seed {one.seed}", **style)
    name = named(own[0].method) + (": share of rows" if own[0].method == "fedavg" else "")
    axes.set_title(f"{name}\n{told(own)}", fontsize=9)
    axes.set_xlabel("accuracy alone (%)")


def _legend(axes: Sequence[Axes], own: Sequence[Held]) -> None:
    """One for all panels, below them, where it hides no client."""
    if len(own) > 1:
        marks = axes[0].get_legend_handles_labels()
        axes[0].figure.legend(*marks, loc="outside lower center", ncols=len(own))


def told(own: Sequence[Held]) -> str:
    """The correlation in words; seeds are not pooled: between them contributions and accuracies both move."""
    known = [one for one in own if not math.isnan(one.r)]
    if not known:
        return "r undefined: all clients alike"
    ends = [one.interval for one in known]
    low, high = (fmean(end) for end in zip(*ends, strict=True))
    interval = "no interval" if math.isnan(low) else f"95 % {low:.2f} to {high:.2f}"
    if len(own) == 1:
        return f"r = {known[0].r:.2f}, {interval}"
    least, mean, most = min(one.r for one in known), fmean(one.r for one in known), max(o.r for o in known)
    few = "" if len(known) == len(own) else f", undefined in {len(own) - len(known)}"
    return f"r = {mean:.2f}, seeds {least:.2f} to {most:.2f}{few}\none seed alone: {interval}"


def contribution_rows(found: Sequence[Held]) -> list[dict[str, Any]]:
    """One for each method, seed and client."""
    return [row for one in found for row in _rows(one)]


def _rows(one: Held) -> list[dict[str, Any]]:
    plan, (low, high) = one.setting.plan, one.interval
    shared = {"dataset": plan.dataset, "partition": plan.partition, "method": one.method, "seed": one.seed}
    fit = {"r_of_seed": one.r, "r_low": low, "r_high": high}
    return [
        {**shared, "client": client, "accuracy_alone": alone, "contribution": share, **fit}
        for client, alone, share in one.known
    ]
