"""Figures of the measurements: KL against size (the paper's Figure 1a), and what the generator did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedakd import figures
from fedakd.partition import ClientShift
from fedakd.shift.measure import SiteShift
from fedakd.shift.tables import generated, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_sizes(sites: Sequence[SiteShift], dims: int, stem: Path) -> None:
    """Each site's KL to the pool against its rows, beside what chance gives; a CSV beside the figure."""
    figures.write_csv(stem.with_suffix(".csv"), plain(sites))
    sites = [site for site in sites if site.enough]
    if not sites:
        return
    rows = np.array([site.distinct for site in sites])
    with figures.drawn(stem) as (axes,):
        for site in sites:
            value = site.kl if site.usable else site.shrunk
            mark, what = ("o", "KL to the pool") if site.usable else ("D", "shrunk: few rows")
            axes.scatter(site.distinct, value, marker=mark, color=figures.COLOURS[0], zorder=3, label=what)
            at, beside = (site.distinct, value), (5, 4)
            axes.annotate(site.name, at, textcoords="offset points", xytext=beside, fontsize=8)
        _chance(axes, sites, rows)
        grid = np.geomspace(rows.min(), rows.max(), 50)
        axes.plot(grid, dims * (dims + 3) / (4 * grid), "--", color=figures.COLOURS[6], label="M(M+3)/4A")
        axes.set(xscale="log", yscale="log", xlabel="different rows of the site")
        axes.set_ylabel("KL divergence (nats)")
        axes.margins(0.08, 0.12)
        named = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        axes.legend(named.values(), named.keys(), loc="center right")


def write_sizes(found: Mapping[int, Sequence[SiteShift]], stem: Path) -> None:
    """The numbers of several seeds, one flat row a seed and site."""
    rows = [{"seed": seed, **row} for seed, sites in found.items() for row in plain(sites)]
    figures.write_csv(stem.with_suffix(".csv"), rows)


def _chance(axes: Axes, sites: Sequence[SiteShift], rows: NDArray[np.int64]) -> None:
    """A bar for each site, not a band: how often rows repeat matters as well as how many there are."""
    chances = [site.chance if site.usable else site.shrunk_chance for site in sites]
    mean, low, high = (np.array([getattr(one, part) for one in chances]) for part in ("mean", "low", "high"))
    style: Any = {"fmt": "_", "color": figures.COLOURS[2], "capsize": 3, "label": "random rows, 95 %"}
    axes.errorbar(rows, mean, yerr=[mean - low, high - mean], **style)


def draw_generated(shifts: Sequence[ClientShift], stem: Path) -> None:
    """What was asked of the generator, what the pools' weights give, and what was drawn, client by client."""
    clients = np.arange(len(shifts))
    with figures.drawn(stem, columns=2, size=(5.0, 3.6)) as (left, right):
        _asked(left, shifts, clients)
        right.bar(clients, [100 * shift.effective_share for shift in shifts])
        right.axhline(5, color="k", linestyle="--", linewidth=1, label="few rows repeat often below")
        right.set(xlabel="client", ylabel="effective size (% of rows)", yscale="log", ylim=(1, 2000))
        right.legend()
    figures.write_csv(stem.with_suffix(".csv"), generated(shifts))


def _asked(axes: Axes, shifts: Sequence[ClientShift], clients: NDArray[np.int64]) -> None:
    """The shift of the mean, or the divergence where that was asked for."""
    series = {"requested": ("k_", "asked"), "realised": ("o", "train pool")}
    series |= {"test_realised": ("s", "test pool"), "drawn": ("x", "rows drawn")}
    told = "squared shift of the mean"
    if not all(math.isnan(shift.kl_requested) for shift in shifts):
        series = {"kl_requested": ("k_", "asked"), "kl_realised": ("o", "train pool")}
        series |= {"gaussian_kl": ("x", "rows drawn")}
        told = "KL divergence (nats)"
    for field, (mark, name) in series.items():
        size = 14 if name == "asked" else 6
        values = [getattr(shift, field) for shift in shifts]
        axes.plot(clients, values, mark, label=name, alpha=0.8, markersize=size)
    axes.set(xlabel="client", ylabel=told, ylim=(0, None))
    axes.legend()
