"""Three ways to judge a client under a generated shift, compared by simulation.

    python benchmarks/judging.py                   the table of docs/shift.md, about 90 seconds
    python benchmarks/judging.py --repeats 100     a quick look

A client's test distribution is the population tilted by exp(t z), with t such that its mean moves by
sqrt(C). Estimated is its gain: P(A right) - P(B right) for two models whose disagreement depends on z. What
is known is a pool of test rows drawn from the population without a shift. The three ways are

    replaced    rows drawn from the pool by weight, with replacement, as many as the client's nominal size
    once        the same, no row twice (the largest Gumbel-perturbed log weights)
    weighted    all rows of the pool, each with its normalised weight

Each has an interval for a difference of paired proportions (Agresti and Min 2005) with the effective number
of rows (Kish) as its number of rows. The designs, and the rule that chooses, were fixed before the first run:
the smallest mean squared error among the ways that cover 93 % or more on average over the designs that the
guard of `GaussianShift` accepts; of those within 10 % of it, the one that judges the fewest rows.

Kish's number takes outcomes to vary as much on heavy rows as on light ones. Where they vary more, as here,
its interval is too narrow, so a last column, added after the first run, has the coverage of `weighted` with
the smaller of Kish's number and the one that follows from the outcomes, s^2 / sum w^2 (d - mean)^2.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from fedakd.partition.sizes import power_law
from fedakd.partition.tilt import draw, effective_size, softmax
from fedakd.threads import one_blas_thread

Numbers = NDArray[np.float64]
POOLS = (14_000, 360)  # FashionMNIST's test pool and that of digits
STRENGTHS = (0.5, 2.0, 5.0, 10.0)
CLIENTS = 10
WAYS = ("replaced", "once", "weighted")
CAUTIOUS = "cautious"
GRID = np.linspace(-12, 16, 200_001)  # of z, for the true gains
COVERED, ALIKE = 0.93, 1.1


@dataclass(frozen=True)
class Population:
    """A mixture of normal distributions of one deviation; mean 0 and variance 1 altogether."""

    shares: tuple[float, ...]
    centres: tuple[float, ...]
    deviation: float

    def sample(self, rows: int, rng: np.random.Generator) -> Numbers:
        centres = rng.choice(self.centres, size=rows, p=self.shares)
        return centres + self.deviation * rng.standard_normal(rows)

    def logs(self, z: Numbers) -> Numbers:
        """The log of the density, up to a constant."""
        far = [np.square((z - centre) / self.deviation) / 2 for centre in self.centres]
        return np.log(sum(share * np.exp(-one) for share, one in zip(self.shares, far, strict=True)) + 1e-300)


POPULATIONS = {
    "normal": Population((1.0,), (0.0,), 1.0),
    # one row in twenty lies in a cluster far away, as a class of images may
    "clustered": Population((0.95, 0.05), (-0.1987, 3.775), 0.5),
}


@dataclass(frozen=True)
class Design:
    """A population, the size of its test pool, and a squared shift of the mean."""

    population: str
    pool: int
    c: float


@dataclass(frozen=True)
class Result:
    """Errors (repeats, clients) and hits of each way, and effective rows of the weighted pool."""

    errors: dict[str, Numbers]
    hits: dict[str, Numbers]
    effective: Numbers

    def accepted(self, sizes: list[int]) -> list[int]:
        """The clients that keep min(100, half of their nominal rows) effective rows, in the median pool."""
        typical = float(np.median(self.effective))
        return [k for k, size in enumerate(sizes) if typical >= min(100, size / 2)]


def outcomes(z: Numbers, rng: np.random.Generator) -> Numbers:
    """+1 where only model A is right, -1 where only B is; A wins on shifted rows and loses on others."""
    a, b = disagreement(z)
    chance = rng.random(len(z))
    return np.where(chance < a, 1.0, np.where(chance < a + b, -1.0, 0.0))


def disagreement(z: Numbers) -> tuple[Numbers, Numbers]:
    return 0.02 + 0.18 / (1 + np.exp(1.5 - z)), np.full(len(z), 0.08)


def truth(population: Population, c: float) -> tuple[float, float]:
    """The strength of the tilt and the true gain: those of an infinite pool, by summation over a grid."""
    base = population.logs(GRID)
    strength = float(brentq(lambda t: softmax(base + t * GRID) @ GRID - math.sqrt(c), 0.0, 20.0, xtol=1e-9))
    a, b = disagreement(GRID)
    return strength, float(softmax(base + strength * GRID) @ (a - b))


def cautious(outcome: Numbers, shares: Numbers) -> float:
    """The effective number of rows by weights, or by outcomes and weights if that is smaller."""
    mean = shares @ outcome
    rest = np.square(outcome - mean)
    noise = np.square(shares) @ rest
    return min(effective_size(shares), (shares @ rest) / noise) if noise > 0 else effective_size(shares)


def estimate(
    outcome: Numbers, weights: Numbers, number: Callable[[Numbers, Numbers], float] | None = None
) -> tuple[float, float, float]:
    """The gain and its 95 % interval; half a row is added to each of the four cells of paired outcomes."""
    shares = weights / weights.sum()
    rows = number(outcome, shares) if number else effective_size(weights)
    better, worse = shares @ (outcome > 0), shares @ (outcome < 0)
    plus, minus = (better * rows + 0.5) / (rows + 2), (worse * rows + 0.5) / (rows + 2)
    half = 1.96 * math.sqrt((plus + minus - (plus - minus) ** 2) / (rows + 2))
    return better - worse, plus - minus - half, plus - minus + half


def judged(way: str, logs: Numbers, size: int, rng: np.random.Generator) -> Numbers:
    """The weight of every row of the pool."""
    if way == "weighted":
        return softmax(logs)
    return np.bincount(draw(logs, size, way == "replaced", rng), minlength=len(logs)).astype(float)


def simulated(design: Design, sizes: list[int], repeats: int) -> Result:
    population = POPULATIONS[design.population]
    strength, gain = truth(population, design.c)
    rng = np.random.default_rng([design.pool, int(10 * design.c)])
    errors = {way: np.empty((repeats, len(sizes))) for way in WAYS}
    hits = {way: np.empty((repeats, len(sizes))) for way in (*WAYS, CAUTIOUS)}
    effective = np.empty(repeats)
    for repeat in range(repeats):
        z = population.sample(design.pool, rng)
        logs, effective[repeat] = strength * z, effective_size(softmax(strength * z))
        for k, size in enumerate(sizes):  # every client sees outcomes of models of its own
            outcome = outcomes(z, rng)
            for way in WAYS:
                point, low, high = estimate(outcome, judged(way, logs, size, rng))
                errors[way][repeat, k], hits[way][repeat, k] = point - gain, low <= gain <= high
            _, low, high = estimate(outcome, softmax(logs), cautious)
            hits[CAUTIOUS][repeat, k] = low <= gain <= high
    return Result(errors, hits, effective)


def designs() -> Iterator[Design]:
    for population in POPULATIONS:
        for pool in POOLS:
            for c in STRENGTHS:
                yield Design(population, pool, c)


def line(design: Design, result: Result, sizes: list[int], taken: list[int]) -> str:
    """One row of the table, over the clients that the guard accepts, or over all if it accepts none."""
    clients = taken or list(range(CLIENTS))
    errors = [100 * math.sqrt(np.mean(np.square(result.errors[way][:, clients]))) for way in WAYS]
    covered = [100 * np.mean(result.hits[way][:, clients]) for way in WAYS]
    cells = [f"{error:.2f} ({cover:.1f})" for error, cover in zip(errors, covered, strict=True)]
    cells.append(f"({100 * np.mean(result.hits[CAUTIOUS][:, clients]):.1f})")
    kept = f"{len(taken)} of {CLIENTS}" if taken else "0, all shown"
    typical = f"{np.median(result.effective):.0f}"
    return (
        f"| {design.population} | {design.pool:,} | {design.c:g} | {typical} | {kept} | {' | '.join(cells)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=400)
    options = parser.parse_args()
    print("root mean squared error of a client's gain in points (coverage of its 95 % interval in %)")
    print(f"| rows | pool | C | effective | clients accepted | {' | '.join((*WAYS, CAUTIOUS))} |")
    print("|---|---|---|---|---|---|---|---|---|")
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    covers: dict[str, list[float]] = {way: [] for way in (*WAYS, CAUTIOUS)}
    for design in designs():
        sizes = power_law(design.pool, CLIENTS)
        result = simulated(design, sizes, options.repeats)
        taken = result.accepted(sizes)
        print(line(design, result, sizes, taken), flush=True)
        for way in WAYS if taken else ():
            error, least = (np.mean(np.square(result.errors[name][:, taken])) for name in (way, "weighted"))
            ratios[way].append(float(error / least))
        for way in covers if taken else ():
            covers[way].append(float(np.mean(result.hits[way][:, taken])))
    print(conclusion(ratios, covers))


def conclusion(ratios: dict[str, list[float]], covers: dict[str, list[float]]) -> str:
    """The rule, applied to the mean coverage and the geometric mean of the errors over accepted designs."""
    error = {way: math.exp(np.mean(np.log(ratios[way]))) for way in WAYS}
    cover = {way: float(np.mean(covers[way])) for way in covers}
    cost = {"replaced": 1.0, "once": 1.0, "weighted": float(CLIENTS)}  # rows judged by all clients, in pools
    valid = [way for way in WAYS if cover[way] >= COVERED]
    close = [way for way in valid if error[way] <= ALIKE * min(error[other] for other in valid)]
    lines = [
        f"{way}: mean squared error {error[way]:.2f} times that of weighted, coverage {cover[way]:.1%} "
        f"(lowest {min(covers[way]):.1%}), {cost[way]:g} times the pool is judged"
        for way in WAYS
    ]
    lines.append(f"cautious: coverage {cover[CAUTIOUS]:.1%} (lowest {min(covers[CAUTIOUS]):.1%})")
    return "\n".join([*lines, f"taken: {min(close, key=lambda way: cost[way]) if close else 'none'}"])


if __name__ == "__main__":
    with one_blas_thread():  # products of a pool's length gain nothing from more
        main()
