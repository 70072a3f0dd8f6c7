"""Figure 3: what a round costs, and how the loss of the global model falls; with Figure 1 b-e from beside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from fedakd import figures
from fedakd.compare.results import Results, Setting
from fedakd.errors import PlanError
from fedakd.experiment import Cell
from fedakd.paper.contributions import draw_contributions
from fedakd.rounds import Round
from fedakd.summary import judged_view, named

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_contributions", "draw_costs", "draw_losses"]

BASE = "fedavg"  # what seconds are compared with: those of one machine mean little by themselves
FEW = 4  # lines whose names find room between them
STYLES = ("-", "-.", "--", ":")  # the first two for global models, when colours come round again


@dataclass(frozen=True)
class Cost:
    """Seconds a round of one method, by seed, and how often of those FedAvg."""

    setting: Setting
    method: str
    seconds: dict[int, float]
    passes: float  # over the training rows, computing gradients: the same on every machine

    @property
    def mean(self) -> float:
        return fmean(self.seconds.values())

    @property
    def std(self) -> float:
        return stdev(self.seconds.values()) if len(self.seconds) > 1 else math.nan

    def times(self, base: Cost | None) -> float:
        """How many times as long as the other takes, over the seeds both have; nan if there are none."""
        common = self.seconds.keys() & base.seconds.keys() if base else set()
        return (
            fmean(self.seconds[s] / base.seconds[s] for s in sorted(common)) if base and common else math.nan
        )


def draw_costs(results: Results, stem: Path) -> list[dict[str, Any]]:
    """Figure 3a: seconds a round by method, a panel for each setting; returns the rows of its CSV."""
    panels = [own for setting in results.settings if (own := costs(setting))]
    if not panels:
        raise PlanError("no cell of these results has the seconds of its rounds")
    tall = 1.2 + 0.32 * max(map(len, panels))
    with figures.drawn(stem, rows=len(panels), size=(6.4, tall)) as axes:
        for place, own in zip(axes, panels, strict=True):
            _bars(place, own)
    rows = [row for own in panels for row in cost_rows(own)]
    figures.write_csv(stem.with_suffix(".csv"), rows)
    return rows


def costs(setting: Setting) -> list[Cost]:
    """By method, in the plan's order; a cell whose seconds were not kept is left out."""
    found = []
    for method in setting.plan.methods:
        cells = [cell for cell in setting.cells if cell.method == method]
        seconds = {cell.seed: fmean(r.seconds for r in cell.rounds) for cell in cells}
        seconds = {seed: own for seed, own in seconds.items() if own > 0}
        if seconds:
            passes = [r.gradients / max(cell.train_rows, 1) for cell in cells for r in cell.rounds]
            found.append(Cost(setting, method, seconds, fmean(passes)))
    return found


def _base(own: Sequence[Cost]) -> Cost | None:
    return next((cost for cost in own if cost.method == BASE), None)


def _bars(axes: Axes, own: Sequence[Cost]) -> None:
    places = range(len(own))
    spread = [0.0 if math.isnan(cost.std) else cost.std for cost in own]
    axes.barh(places, [cost.mean for cost in own], color=figures.COLOURS[0], alpha=0.6, height=0.7)
    ends = [max(cost.mean + wide, *cost.seconds.values()) for cost, wide in zip(own, spread, strict=True)]
    if max(spread):
        style: Any = {"fmt": "none", "ecolor": "k", "capsize": 2, "linewidth": 1}
        axes.errorbar([cost.mean for cost in own], places, xerr=spread, **style)
    for place, (cost, end) in enumerate(zip(own, ends, strict=True)):
        axes.plot(list(cost.seconds.values()), [place] * len(cost.seconds), "k.", markersize=4, alpha=0.6)
        times = cost.times(_base(own))
        said = f"{cost.mean:.2g} s" + ("" if math.isnan(times) else f", {times:.1f} x")
        axes.annotate(said, (end, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(list(places), [named(cost.method) for cost in own])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(ends))
    axes.grid(axis="y", visible=False)
    axes.set_title(own[0].setting.label, fontsize=10)
    seeds = max(len(cost.seconds) for cost in own)
    over = f"mean ± standard deviation of {seeds} seeds" if seeds > 1 else "one seed"
    relative = f"; x: times {named(BASE)}" if _base(own) else ""
    axes.set_xlabel(f"seconds a round, on one machine\n({over}{relative})")


def cost_rows(own: Sequence[Cost]) -> list[dict[str, Any]]:
    """One for each method of a setting."""
    return [
        {
            "dataset": cost.setting.plan.dataset,
            "partition": cost.setting.plan.partition,
            "method": cost.method,
            "seconds": cost.mean,
            "std": cost.std,
            "seeds": len(cost.seconds),
            "times_fedavg": cost.times(_base(own)),
            "passes": cost.passes,
        }
        for cost in own
    ]


@dataclass(frozen=True)
class Curve:
    """The loss of one method after each judged round, by seed."""

    setting: Setting
    method: str
    view: str
    by_seed: dict[int, dict[int, float]]  # seed -> round -> loss

    @property
    def label(self) -> str:
        return (
            named(self.method) if self.view == "global" else f"{named(self.method)} (no global: {self.view})"
        )

    @property
    def rounds(self) -> list[int]:
        return sorted({number for own in self.by_seed.values() for number in own})

    def at(self, number: int) -> list[float]:
        return [own[number] for own in self.by_seed.values() if number in own]


def draw_losses(results: Results, stem: Path, methods: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Figure 3b: the global model's loss, round by round; returns the rows of its CSV.

    The paper draws the loss on training rows; those are not judged here, so this is the loss on test rows.
    """
    panels = [own for setting in results.settings if (own := curves(setting, methods))]
    if not panels:
        raise PlanError(
            f"no losses to draw: none of {', '.join(methods or ['the methods'])} has a judged round"
        )
    wide = 8.0 if max(map(len, panels)) > FEW else 5.6
    with figures.drawn(stem, columns=len(panels), size=(wide, 4.2)) as axes:
        for place, own in zip(axes, panels, strict=True):
            _lines(place, own)
    rows = [row for own in panels for curve in own for row in loss_rows(curve)]
    figures.write_csv(stem.with_suffix(".csv"), rows)
    return rows


def curves(setting: Setting, methods: Sequence[str] | None = None) -> list[Curve]:
    """By method, in the plan's order; those without a judged round are left out."""
    found = [_curve(setting, one) for one in setting.plan.methods if methods is None or one in methods]
    return [curve for curve in found if curve and curve.rounds]


def _curve(setting: Setting, method: str) -> Curve | None:
    cells = [cell for cell in setting.cells if cell.method == method]
    if not cells:
        return None
    shared = all("global/loss" in cell.rounds[-1].scores for cell in cells)
    view = "global" if shared else judged_view(cells[0], setting.plan.preset)
    losses = {cell.seed: _losses(cell, view, weights(setting, cell)) for cell in cells}
    return Curve(setting, method, view, losses)


def _losses(cell: Cell, view: str, rows: dict[int, int]) -> dict[int, float]:
    found = {record.number: mean_loss(record, view, rows) for record in cell.rounds}
    return {number: loss for number, loss in found.items() if math.isfinite(loss)}


def weights(setting: Setting, cell: Cell) -> dict[int, int]:
    """Test rows by client, or the different ones where there is no audit.

    Under a shift all clients are judged on the whole pool by their weights; they count by their own size.
    """
    stored = setting.audits.get(cell.seed, {}).get("clients", ())
    if stored and cell.evaluation == "local":
        sizes = [(own["shift"] or {}).get("test_size") or own["test"]["rows"] for own in stored]
        return {client: int(size) for client, size in enumerate(sizes)}
    return dict(enumerate(cell.distinct_test_rows))


def mean_loss(record: Round, view: str, rows: dict[int, int]) -> float:
    """Over the test rows of all clients that have a loss: each client's mean, weighted by its rows."""
    scores = record.scores.get(f"{view}/loss", {})
    known = {client: loss for client, loss in scores.items() if math.isfinite(loss)}
    total = sum(rows[client] for client in known)
    return sum(rows[client] * loss for client, loss in known.items()) / total if total else math.nan


def _lines(axes: Axes, own: Sequence[Curve]) -> None:
    from matplotlib.ticker import MaxNLocator

    for curve in own:
        colour, style = _look(curve, own)
        rounds, losses = curve.rounds, [curve.at(number) for number in curve.rounds]
        few = {"marker": "o", "markersize": 3} if len(rounds) <= 40 else {}
        drawn: Any = {"color": colour, "linestyle": style, "label": curve.label, **few}
        axes.plot(rounds, [fmean(at) for at in losses], **drawn)
        axes.fill_between(rounds, [*map(min, losses)], [*map(max, losses)], color=colour, alpha=0.12, lw=0)
    seeds = max(len(curve.by_seed) for curve in own)
    over = f"mean and range of {seeds} seeds" if seeds > 1 else "one seed"
    axes.set(xlabel="round", ylabel="loss of the global model,\nmean over the clients' test rows")
    axes.set_title(f"{own[0].setting.label}: {over}", fontsize=10)
    beside: Any = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if len(own) > FEW else {}
    axes.legend(fontsize=8, handlelength=3, **beside)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _look(curve: Curve, own: Sequence[Curve]) -> tuple[str, str]:
    """Global models and others have all colours each, in lines of their own."""
    alike = [one.method for one in own if (one.view == "global") == (curve.view == "global")]
    again, place = divmod(alike.index(curve.method), len(figures.COLOURS))
    styles = STYLES[:2] if curve.view == "global" else STYLES[2:]
    return figures.COLOURS[place], styles[again % 2]


def loss_rows(curve: Curve) -> list[dict[str, Any]]:
    """One for each seed and judged round."""
    plan = curve.setting.plan
    shared = {
        "dataset": plan.dataset,
        "partition": plan.partition,
        "method": curve.method,
        "view": curve.view,
    }
    return [
        {**shared, "seed": seed, "round": number, "loss": loss}
        for seed, own in curve.by_seed.items()
        for number, loss in own.items()
    ]
