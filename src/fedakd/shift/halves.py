"""The paper's Figure 2 from a federation: FedAvg is trained, its rows are parted, projected and drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedakd import figures
from fedakd.federation import Federation
from fedakd.partition import whitening
from fedakd.rounds import Round
from fedakd.shift.measure import Features
from fedakd.shift.wrong import Halves, Marks, RightWrong, compared
from fedakd.threads import one_blas_thread, one_thread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedakd.examples import Examples
    from fedakd.training import Bench, Recipe, Task
    from fedakd.trees import Params

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
    parts = [federation.dataset.examples(np.unique(rows)) for rows in federation.train]
    return seen_by(result.state["model"], Bench(task, recipe), parts, dims, federation.seed)


def seen_by(model: Params, bench: Bench, parts: Sequence[Examples], dims: int, seed: int) -> Parted:
    """What the model makes of clients' rows, in one space for all of them."""
    with one_thread(), one_blas_thread():  # or bits would depend on the number of threads
        bodies = [bench.features(model, data).flatten(1).numpy() for data in parts]
        right = [(bench.logits(model, data).argmax(1) == data.y).numpy() for data in parts]
        everybody = np.concatenate(bodies)
        white = whitening.fit(everybody, np.arange(len(everybody)), dims, np.random.default_rng(seed))
        return Parted([white.features(own) for own in bodies], right)


def task_of(federation: Federation, model: str) -> Task:
    from fedakd.models import factory
    from fedakd.training import Task

    return Task(factory(model, federation.dataset.x.shape[1:], federation.dataset.classes))


def judged(rows: Parted, seed: int, repeats: int, progress: Callable[[int, int], None]) -> RightWrong:
    """The parted rows of all clients beside rows parted at random; clients go by their numbers."""
    names, rng = [str(client) for client in range(len(rows.right))], np.random.default_rng(seed)
    return compared(names, rows.features, rows.right, rng, repeats=repeats, progress=progress)


def draw(found: Mapping[int, RightWrong], rows: Parted, shown: Sequence[int], stem: Path) -> None:
    """Of the first seed, whose rows these are, densities of right and of wrong rows of some clients beside
    everybody's and KL of both per client; of all seeds, if there are several, what the claim rests on.
    """
    table = [{"seed": seed, **_flat(one)} for seed, own in found.items() for one in own.clients]
    figures.write_csv(stem.with_suffix(".csv"), table)
    of = f", seed {next(iter(found))}" if len(found) > 1 else ""
    with figures.drawn(stem, columns=4 if of else 3, size=(4.2, 3.6)) as (right, wrong, both, *over):
        _densities(right, rows, shown, side=True)
        _densities(wrong, rows, shown, side=False)
        right.set_title(f"(a) rows the model gets right{of}")
        wrong.set_title(f"(b) rows it gets wrong{of}")
        _divergences(both, next(iter(found.values())))
        for axes in over:
            _differences(axes, found)


def _flat(one: Halves) -> dict[str, object]:
    line = {name: value for name, value in asdict(one).items() if not name.startswith("chance")}
    for side, chance in (("right", one.chance_right), ("wrong", one.chance_wrong)):
        line |= {f"chance_{side}_{part}": value for part, value in asdict(chance).items()}
    return line


def _differences(axes: Axes, found: Mapping[int, RightWrong]) -> None:
    """The mean of KL(wrong) - KL(right), seed by seed, and where 95 % of random partings lie."""
    places, chances = np.arange(len(found)), [one.chance for one in found.values()]
    low, high = ([getattr(one, end) for one in chances] for end in ("low", "high"))
    axes.vlines(places, low, high, color="grey", zorder=1)
    axes.scatter(places, [one.difference for one in found.values()], color=figures.COLOURS[1], zorder=2)
    axes.axhline(0, color="k", linewidth=0.8)
    axes.set(xlabel="seed", ylabel="KL(wrong) - KL(right), mean of clients")
    axes.set_xticks(places, [str(seed) for seed in found])
    axes.set_xlim(-0.5, len(found) - 0.5)
    axes.set_title("(d) all seeds; grey: parted at random")


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
