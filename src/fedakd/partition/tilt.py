"""Weights that shift the mean of whitened rows, and how strong they must be to shift it by a given amount.

With z whitened, weighting the rows by exp(delta'z) moves a Gaussian's mean by exactly delta and keeps its
covariance. Real rows are not Gaussian: there the length of delta is solved for, so that the squared length of
the weighted mean, all components counted, is what was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedakd.partition.contract import Features

Weigh = Callable[[Features], Features]  # shares of rows, summing to 1, from the logs of their weights
Measure = Callable[[Features, Features], float]  # how far rows (n, dims) with these shares are shifted
STRONGEST = 256.0  # z has unit variance: at this strength the weight sits on the outermost rows alone
NEWTON_STEPS = 30
FAR = 1e100  # instead of infinity, a KL divergence's on few rows: a root is sought among numbers


@dataclass(frozen=True, eq=False)
class Tilt:
    """Weights exp(delta'z), with a form F times exp(z'Fz / 2), with `density` exp(-|z - delta|^2 / 2)."""

    delta: Features  # (dims,)
    density: bool = False
    form: Features | None = None  # (dims, dims), symmetric

    def logs(self, z: Features) -> Features:
        """Logs of the weights, up to a constant; the weights themselves may underflow."""
        logs = z @ self.delta
        if self.form is not None:
            logs = logs + 0.5 * np.einsum("nd,nd->n", z @ self.form, z)
        return np.asarray(logs - 0.5 * np.einsum("nd,nd->n", z, z) if self.density else logs)


@dataclass(frozen=True)
class Shares:
    """Each row's share in what is drawn: by weight, or as `size` rows without replacement."""

    size: int | None = None

    def __call__(self, logs: Features) -> Features:
        return softmax(logs) if self.size is None else inclusion(logs, self.size)

    def slopes(self, shares: Features) -> Features:
        """How fast each share grows with the log of its weight, before the others give way."""
        if self.size is None:
            return shares
        missed = np.maximum(1 - self.size * shares, 1e-12)  # exp(-rate), see `inclusion`
        return np.asarray(-missed * np.log(missed) / self.size)


def softmax(logs: Features) -> Features:
    """exp(logs) over its sum; subtracting the largest first, nothing overflows."""
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def inclusion(logs: Features, size: int) -> Features:
    """Each row's chance to be among `size` drawn without replacement, over their sum.

    Draws one by one by weight w are arrivals of Poisson clocks of rate w, stopped at the time s when `size`
    rows have come: chances are 1 - exp(-s w), and s makes them sum to `size` (Rosen 1972). Heavy rows come
    once at most, so the same weights shift the mean less than with replacement.
    """
    logs = (
        logs - np.partition(logs, -size)[-size]
    )  # a clock of rate 1 for the last row that weight alone admits
    time = 0.0  # its log
    for _ in range(NEWTON_STEPS):
        rates = np.exp(np.minimum(logs + time, 50.0))
        missed = np.exp(-rates)
        step = (size - np.sum(1 - missed)) / max(np.sum(rates * missed), 1e-12)
        time += float(np.clip(step, -2, 2))
        if abs(step) < 1e-9:
            break
    chances = -np.expm1(-np.exp(np.minimum(logs + time, 50.0)))
    return np.asarray(chances / chances.sum())


def effective_size(weights: Features) -> float:
    """How many equally weighted rows carry as much: (sum w)^2 / sum w^2.

    >>> effective_size(np.array([0.5, 0.5, 0.0]))
    2.0
    """
    return float(weights.sum() ** 2 / np.square(weights).sum())


def squared_shift(weights: Features, z: Features) -> float:
    """Squared length of the weighted mean, for weights that sum to 1."""
    mean = np.einsum("n,nd->d", weights, z)  # one thread: a product this thin gains nothing from more
    return float(mean @ mean)


def calibrated(
    u: Features,
    z: Features,
    c: float,
    least: float,
    weigh: Weigh = softmax,
    measure: Measure = squared_shift,
    limit: float = STRONGEST,
) -> tuple[Tilt | None, float]:
    """The tilt along `u` whose shift, squared unless measured otherwise, is `c`; and the largest along `u`.

    Both with an effective size of at least `least` and a strength of at most `limit`. The shift is continuous
    in the strength, so every c up to the shift at the largest strength is reached.
    """
    along = z @ u
    largest = strongest(along, least, weigh, limit)
    reach = measure(weigh(largest * along), z)
    if reach < c:
        return None, reach
    strength = root(lambda t: c - min(measure(weigh(t * along), z), FAR), largest)
    return Tilt(strength * u), reach


def strongest(along: Features, least: float, weigh: Weigh = softmax, limit: float = STRONGEST) -> float:
    """The largest t up to `limit` at which weights exp(t along) have an effective size of at least `least`.

    The effective size falls with t (with replacement it is exp(2 K(t) - K(2t)), K convex), so there is one.
    """
    return root(lambda t: math.log(effective_size(weigh(t * along))) - math.log(max(least, 1e-9)), limit)


def root(f: Callable[[float], float], high: float = STRONGEST) -> float:
    """A strength up to `high` where f, positive at 0, is zero, or `high` if f is positive there too."""
    from scipy.optimize import brentq  # as sure as bisection, in a third of the steps; slow to import

    return high if f(high) >= 0 else float(brentq(f, 0.0, high, xtol=1e-9, rtol=1e-9))


def unit(dims: int, rng: np.random.Generator) -> Features:
    """A direction, uniform on the sphere."""
    u = rng.standard_normal(dims)
    return np.asarray(u / np.linalg.norm(u))


def draw(logs: Features, size: int, replacement: bool, rng: np.random.Generator) -> NDArray[np.int64]:
    """`size` positions by weight exp(logs), with replacement or as the top of Gumbel-perturbed logs."""
    if replacement:
        return rng.choice(len(logs), size=size, p=softmax(logs))
    noisy = logs + rng.gumbel(size=len(logs))
    return np.argpartition(-noisy, size - 1)[:size].astype(np.int64)
