"""Whether runs that are called converged stay where they are when they get twice the rounds.

    python benchmarks/convergence.py                            digits, about 10 minutes on one core
    python benchmarks/convergence.py --dataset fashion-mnist    likewise, judged on 14,000 rows instead of 360
    python benchmarks/convergence.py --small                    a look at FedAvg with mlp, about a minute
    python benchmarks/convergence.py --read curves.json         the table again, from the curves of --out

Every run of 80 rounds is judged in every round, so its first N rounds are the run with N rounds; it is
called converged or not at N, and its score at 2N says whether that was right. Two changes are told: of the
scores after the last round, as tables show them, and of their means over the last quarter of the rounds,
which hold less noise. The grid is fixed here; the table goes to standard output, and the curves, as JSON,
to --out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean, stdev

from fedakd.convergence import convergence, last_rounds, mean_curve, score_curve
from fedakd.data import load
from fedakd.data.images import ImageDataset
from fedakd.federation import federate
from fedakd.methods import METHODS
from fedakd.models import factory
from fedakd.simulation import simulate
from fedakd.training import Recipe, Task

PARTITIONS = ("pow", "ics(0.5)")
NAMES = ("standalone", "fedavg", "fedakd", "cgsv")
RATES = (0.001, 0.003)  # of Adam
LENGTHS = (10, 20, 40)
SMALL = 0.01  # a change of 1 point, as a fraction


@dataclass(frozen=True)
class Grid:
    """What depends on the dataset."""

    clients: int
    scale: float  # share of the training rows
    seeds: dict[str, int]  # by model


GRIDS = {"digits": Grid(5, 1.0, {"mlp": 5, "cnn": 1}), "fashion-mnist": Grid(10, 0.05, {"mlp": 1})}


@dataclass(frozen=True)
class Setting:
    """Everything of a run but its seed."""

    dataset: str
    partition: str
    method: str
    model: str
    lr: float


@dataclass(frozen=True)
class Curves:
    """The runs of one setting."""

    setting: Setting
    by_seed: dict[int, list[tuple[int, float]]]


@dataclass(frozen=True)
class Called:
    """What was said of a run after N rounds, and how much its score then changed up to 2N."""

    setting: Setting
    seed: int | None  # None: the mean over all seeds
    rounds: int
    state: str
    change: float  # of the score after the last round
    smooth_change: float  # of the mean score over the last quarter of the rounds


def curve_of(dataset: ImageDataset, setting: Setting, seed: int, rounds: int) -> list[tuple[int, float]]:
    """The mean accuracy over clients after every round."""
    grid = GRIDS[setting.dataset]
    federation = federate(dataset, setting.partition, grid.clients, scale=grid.scale, seed=seed)
    task = Task(factory(setting.model, dataset.shape, dataset.classes))
    recipe = Recipe(lr=setting.lr, optimizer="adam")
    method = METHODS[setting.method]
    result = simulate(method, federation, task, recipe, rounds=rounds, seed=seed, workers=0)
    view = next(iter(result.rounds[-1].scores)).split("/")[0]  # a method's first view is the judged one
    return score_curve(result.rounds, view)


def measured(settings: Sequence[Setting], rounds: int) -> Iterator[Curves]:
    dataset = load(settings[0].dataset)
    for setting in settings:
        began, seeds = time.perf_counter(), range(GRIDS[setting.dataset].seeds[setting.model])
        yield Curves(setting, {seed: curve_of(dataset, setting, seed, rounds) for seed in seeds})
        print(f"{setting}: {time.perf_counter() - began:.0f} s", flush=True)


def called(runs: Curves) -> Iterator[Called]:
    """Every run, and the mean over the seeds, after each number of rounds."""
    joint = mean_curve(list(runs.by_seed.values()))
    for rounds, (seed, curve) in product(LENGTHS, [*runs.by_seed.items(), (None, joint)]):
        state, (short, long) = (
            convergence(curve[:rounds], rounds).state,
            (curve[:rounds], curve[: 2 * rounds]),
        )
        yield Called(runs.setting, seed, rounds, state, long[-1][1] - short[-1][1], late(long) - late(short))


def late(curve: Sequence[tuple[int, float]]) -> float:
    """The mean score over the last quarter of the rounds, at least four."""
    return fmean(score for _, score in curve[-last_rounds(len(curve)) :])


def noise(runs: Sequence[Curves]) -> float:
    """The standard deviation of a score from round to round, over the last 20 rounds."""
    curves = [curve[-20:] for one in runs for curve in one.by_seed.values()]
    steps = [[b[1] - a[1] for a, b in pairwise(curve)] for curve in curves]
    return fmean(stdev(own) / 2**0.5 for own in steps)


def line(name: str, rows: Sequence[Called]) -> str:
    """One line of the table in docs/convergence.md."""
    settled = [row for row in rows if row.state == "converged"]
    rising = [row for row in rows if row.state == "not converged"]
    return "| " + " | ".join([name, *told(settled), *told(rising)]) + " |"


def told(rows: Sequence[Called]) -> list[str]:
    """How many, the shares that change by under 1 point, and the mean change in points."""
    if not rows:
        return ["0", "-", "-", "-"]
    shares = [fmean(abs(row.change) < SMALL for row in rows)]
    shares.append(fmean(abs(row.smooth_change) < SMALL for row in rows))
    change = f"{100 * fmean(row.smooth_change for row in rows):+.1f}"
    return [str(len(rows)), *(f"{100 * share:.0f} %" for share in shares), change]


def table(rows: Sequence[Called]) -> str:
    single = [row for row in rows if row.seed is not None]
    joint = [row for row in rows if row.seed is None]
    part = ["under 1 point", "under 1 point, last quarter", "mean change"]
    names = ["", "converged", *part, "not converged", *part]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|", line("all, one seed", single)]
    lines += [line(f"N = {n}", [row for row in single if row.rounds == n]) for n in LENGTHS]
    for field in ("partition", "method", "model", "lr"):
        values = dict.fromkeys(getattr(row.setting, field) for row in single)
        lines += [line(f"{v}", [row for row in single if getattr(row.setting, field) == v]) for v in values]
    return "\n".join([*lines, line("all, mean of the seeds", joint)])


def stored(path: Path) -> list[Curves]:
    """The curves that --out wrote."""
    return [
        Curves(
            Setting(**one["setting"]),
            {
                int(seed): [(number, score) for number, score in curve]
                for seed, curve in one["by_seed"].items()
            },
        )
        for one in json.loads(path.read_text())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dataset", choices=GRIDS, default="digits")
    parser.add_argument("--small", action="store_true", help="FedAvg with mlp alone")
    parser.add_argument("--out", type=Path, help="a JSON file for the curves, written after every setting")
    parser.add_argument("--read", type=Path, help="a file of --out: compute nothing")
    given = parser.parse_args()
    axes = (GRIDS[given.dataset].seeds, PARTITIONS, NAMES, RATES)
    settings = [Setting(given.dataset, p, method, model, lr) for model, p, method, lr in product(*axes)]
    if given.small:
        settings = [setting for setting in settings if (setting.method, setting.model) == ("fedavg", "mlp")]
    runs = stored(given.read) if given.read else []
    for curves in measured(settings, 2 * max(LENGTHS)) if not given.read else ():
        runs.append(curves)
        if given.out:
            given.out.write_text(json.dumps([asdict(one) for one in runs]) + "\n")
    print(table([row for curves in runs for row in called(curves)]))
    print(f"noise from round to round: {100 * noise(runs):.2f} points")


if __name__ == "__main__":
    main()
