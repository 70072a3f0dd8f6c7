"""The paper's Figure 2 from a federation: FedAvg is trained, its rows are parted, projected and drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedakd import figures
from fedakd.federation import Federation
from fedakd.partition import whitening
from fedakd.rounds import Round
from fedakd.shift.measure import Features
from fedakd.shift.wrong import Marks, RightWrong

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedakd.training import Recipe, Task

MOST = 5_000  # rows a density is estimated from


@dataclass(frozen=True, eq=False)
class Parted:
    """Each client's training rows as the model's body sees them, and whether its head gets them right."""

    features: list[Features]  # (rows, dims), whitened principal components
    right: list[Marks]


def parted(
    federation: Federation,
    task: Task,
    recipe: Recipe,
    *,
    rounds: int,
    dims: int,
    workers: int | None,
    on_round: Callable[[Round], None],
) -> Parted:
    """One model for all, or features of different clients would not be of one space."""
    from fedakd.methods.fedavg import FedAvg
    from fedakd.simulation import simulate
    from fedakd.training import Bench

    result = simulate(
        FedAvg(),
        federation,
        task,
        recipe,
        rounds=rounds,
        seed=federation.seed,
        workers=workers,
        on_round=lambda record, _: on_round(record),
    )
    bench, model = Bench(task, recipe), result.state["model"]
    bodies, right = [], []
    for rows in federation.train:
        data = federation.dataset.examples(np.unique(rows))
        bodies.append(bench.features(model, data).flatten(1).numpy())
        right.append((bench.logits(model, data).argmax(1) == data.y).numpy())
    everybody = np.concatenate(bodies)
    white = whitening.fit(everybody, np.arange(len(everybody)), dims, np.random.default_rng(federation.seed))
    return Parted([white.features(own) for own in bodies], right)


def draw(found: RightWrong, rows: Parted, shown: Sequence[int], stem: Path) -> None:
    """Densities of right and of wrong rows of some clients beside everybody's, and KL of both per client."""
    with figures.drawn(stem, columns=3, size=(4.2, 3.6)) as (right, wrong, both):
        _densities(right, rows, shown, side=True)
        _densities(wrong, rows, shown, side=False)
        right.set_title("(a) rows the model gets right")
        wrong.set_title("(b) rows it gets wrong")
        _divergences(both, found)
    table = [{k: v for k, v in asdict(one).items() if not k.startswith("chance")} for one in found.clients]
    for line, one in zip(table, found.clients, strict=True):
        for side, chance in (("right", one.chance_right), ("wrong", one.chance_wrong)):
            line |= {f"chance_{side}_{part}": value for part, value in asdict(chance).items()}
    figures.write_csv(stem.with_suffix(".csv"), table)


def _densities(axes: Axes, rows: Parted, shown: Sequence[int], side: bool) -> None:
    from scipy.stats import gaussian_kde

    parts = [z[own == side, 0] for z, own in zip(rows.features, rows.right, strict=True)]
    low, high = np.quantile(np.concatenate(parts), [0.002, 0.998])
    grid = np.linspace(low, high, 200)
    named = {"everybody": np.concatenate(parts), **{f"client {k}": parts[k] for k in shown}}
    for name, values in named.items():
        if len(np.unique(values)) > 1:
            step = max(1, len(values) // MOST)
            axes.plot(grid, gaussian_kde(values[::step])(grid), label=f"{name} ({len(values)})")
    axes.set(xlabel="first principal component", ylabel="density")
    axes.legend(fontsize=8)


def _divergences(axes: Axes, found: RightWrong) -> None:
    places = np.arange(len(found.clients))
    for offset, side in ((-0.12, "right"), (0.12, "wrong")):
        values = [getattr(one, f"kl_{side}") for one in found.clients]
        chances = [getattr(one, f"chance_{side}") for one in found.clients]
        reach = [[one.mean - one.low for one in chances], [one.high - one.mean for one in chances]]
        means = [one.mean for one in chances]
        axes.errorbar(places + offset, means, yerr=reach, fmt="none", ecolor="grey", capsize=2, zorder=1)
        axes.scatter(places + offset, values, label=side, zorder=2)
    axes.set(xlabel="client", ylabel="KL to everybody's (nats)", yscale="log")
    axes.set_xticks(places, [one.name for one in found.clients])
    axes.set_title("(c) KL; grey: rows parted at random")
    axes.legend(fontsize=8)
