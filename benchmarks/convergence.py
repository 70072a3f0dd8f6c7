"""Whether runs that are called converged stay where they are when they get twice the rounds.

    python benchmarks/convergence.py            digits, 112 runs of 80 rounds (about 10 minutes on one core)
    python benchmarks/convergence.py --small    20 of them (about a minute)

Every run of 80 rounds is judged in every round, so its first N rounds are the run with N rounds; it is
called converged or not at N, and its score at 2N says whether that was right. The scores are those of the
last round, as tables show them. The grid is fixed here; results go to standard output, and the curves, as
JSON, to --out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean

from fedakd.convergence import convergence, mean_curve, score_curve
from fedakd.data import load
from fedakd.data.images import ImageDataset
from fedakd.federation import federate
from fedakd.methods import METHODS
from fedakd.models import factory
from fedakd.simulation import simulate
from fedakd.training import Recipe, Task

PARTITIONS = ("pow", "ics(0.5)")
NAMES = ("standalone", "fedavg", "fedakd", "cgsv")
SEEDS = {"mlp": 5, "cnn": 2}  # by model; a round of cnn takes five times as long
RATES = (0.001, 0.003)
LENGTHS = (10, 20, 40)
CLIENTS = 5
SMALL = 0.01  # a change of 1 point, as a fraction


@dataclass(frozen=True)
class Setting:
    """Everything of a run but its seed."""

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
    rise: float
    change: float


def curve_of(dataset: ImageDataset, setting: Setting, seed: int, rounds: int) -> list[tuple[int, float]]:
    """The mean accuracy over clients after every round."""
    federation = federate(dataset, setting.partition, CLIENTS, seed=seed)
    task = Task(factory(setting.model, dataset.shape, dataset.classes))
    recipe = Recipe(lr=setting.lr, optimizer="adam")
    method = METHODS[setting.method]
    result = simulate(method, federation, task, recipe, rounds=rounds, seed=seed, workers=0)
    view = next(iter(result.rounds[-1].scores)).split("/")[0]  # a method's first view is the judged one
    return score_curve(result.rounds, view)


def called(runs: Curves) -> Iterator[Called]:
    """Every run, and the mean over the seeds, after each number of rounds."""
    joint = mean_curve(list(runs.by_seed.values()))
    for rounds, (seed, curve) in product(LENGTHS, [*runs.by_seed.items(), (None, joint)]):
        result, score = convergence(curve[:rounds], rounds), dict(curve)
        change = score[2 * rounds] - score[rounds]
        yield Called(runs.setting, seed, rounds, result.state, result.rise, change)


def measured(settings: Sequence[Setting], rounds: int) -> Iterator[Curves]:
    dataset = load("digits")
    for setting in settings:
        began, seeds = time.perf_counter(), range(SEEDS[setting.model])
        yield Curves(setting, {seed: curve_of(dataset, setting, seed, rounds) for seed in seeds})
        print(f"{setting}: {time.perf_counter() - began:.0f} s", flush=True)


def line(name: str, rows: Sequence[Called]) -> str:
    """One line of the table in docs/convergence.md."""
    settled = [row for row in rows if row.state == "converged"]
    rising = [row for row in rows if row.state == "not converged"]
    return "| " + " | ".join([name, str(len(rows)), *told(settled), *told(rising)]) + " |"


def told(rows: Sequence[Called]) -> list[str]:
    """How many, the share that changes by under 1 point, and the mean change in points."""
    if not rows:
        return ["0", "-", "-"]
    share = fmean(abs(row.change) < SMALL for row in rows)
    return [str(len(rows)), f"{100 * share:.0f} %", f"{100 * fmean(row.change for row in rows):+.1f}"]


def table(rows: Sequence[Called]) -> str:
    single = [row for row in rows if row.seed is not None]
    joint = [row for row in rows if row.seed is None]
    names = ["", "runs", *("called converged", "change by under 1 point", "mean change")]
    names += ["called not converged", "change by under 1 point", "mean change"]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|", line("all, one seed", single)]
    lines += [
        line(f"N = {n}", [r for r in single if r.rounds == n]) for n in sorted({r.rounds for r in rows})
    ]
    for field in ("partition", "method", "model", "lr"):
        values = dict.fromkeys(getattr(row.setting, field) for row in single)
        lines += [line(f"{v}", [r for r in single if getattr(r.setting, field) == v]) for v in values]
    return "\n".join([*lines, line("all, mean of the seeds", joint)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true", help="FedAvg with mlp alone")
    parser.add_argument("--out", type=Path, help="a JSON file for every single run")
    given = parser.parse_args()
    settings = [Setting(p, m, model, lr) for model, p, m, lr in product(SEEDS, PARTITIONS, NAMES, RATES)]
    if given.small:
        settings = [setting for setting in settings if setting.method == "fedavg" and setting.model == "mlp"]
    runs = []
    for curves in measured(settings, 2 * max(LENGTHS)):
        runs.append(curves)
        if given.out:
            given.out.write_text(json.dumps([asdict(curves) for curves in runs]) + "\n")
    print(table([row for curves in runs for row in called(curves)]))


if __name__ == "__main__":
    main()
