"""The designs of `coverage.py`: how gains, outcomes of test rows and accuracies are drawn around a truth.

Written before the first simulation and not chosen by its results; a design whose target is missed stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SEEDS = (2, 3, 5)
CLIENTS = (2, 5, 10, 50)
SEED_SPREADS = (0.0, 0.5, 1.0, 2.0)  # in client spreads
GAINS = (0.0, 0.02, 0.05, 0.10)
EFFECTIVE_ROWS = (15, 50, 100, 500, 1400)
WEIGHTS = ("equal", "unequal", "unequal, linked to the outcomes")
CF_CLIENTS = (5, 7, 10, 20, 50)
CF_TRUTHS = (0, 50, 78, 95)
SHAPES = ("normal", "skewed")

CLIENT_SPREAD, RESIDUAL, MEAN = 0.03, 0.015, 0.02  # standard deviations and mean of gains, as fractions
LOSSES = 0.025  # share of rows that only the first model has right; wins are this plus the gain
TILT = 1.25  # weights exp(TILT z), z standard normal: exp(TILT^2) = 4.8 rows for each effective row


@dataclass(frozen=True)
class GainTable:
    """Gains of the same clients in several seeds: mean + client + seed + residual, all normal."""

    seeds: int
    clients: int
    seed_spread: float

    def __str__(self) -> str:
        return f"{self.seeds} seeds, {self.clients} clients, seed spread {self.seed_spread:g}"

    def draw(self, repeats: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Tables (repeats, seeds, clients) and the mean over the clients drawn, which differs each time."""
        client = rng.normal(0, CLIENT_SPREAD, (repeats, 1, self.clients))
        seed = rng.normal(0, self.seed_spread * CLIENT_SPREAD, (repeats, self.seeds, 1))
        residual = rng.normal(0, RESIDUAL, (repeats, self.seeds, self.clients))
        return MEAN + client + seed + residual, MEAN + client.mean((1, 2))


@dataclass(frozen=True)
class Outcomes:
    """Test rows of one client under two models whose gain is known."""

    gain: float
    effective: int
    weights: str

    def __str__(self) -> str:
        return f"{self.effective} effective rows, weights {self.weights}, gain {100 * self.gain:g} points"

    def draw(self, rng: np.random.Generator) -> tuple[Bools, Bools, Array]:
        """Which rows each model has right, and the weights."""
        if self.weights == "equal":
            return *outcomes(np.ones(self.effective), self.gain, rng), np.full(
                self.effective, 1 / self.effective
            )
        z = rng.normal(size=round(self.effective * math.exp(TILT**2)))
        weights = np.exp(TILT * z)
        # Weighted, z is normal about TILT, where 2 ndtr(z - TILT) has mean 1: the weighted gain stays.
        scale = 2 * ndtr(z - TILT) if "linked" in self.weights else np.ones(len(z))
        return *outcomes(scale, self.gain, rng), weights / weights.sum()


def outcomes(scale: Array, gain: float, rng: np.random.Generator) -> tuple[Bools, Bools]:
    """Two models' outcomes, right alike on 70 % of the rows on which they agree."""
    place = rng.random(len(scale))
    win = place < scale * (LOSSES + gain)
    lose = place > 1 - scale * LOSSES
    both = rng.random(len(scale)) < 0.7
    return (both & ~win) | lose, (both & ~lose) | win


@dataclass(frozen=True)
class Judged:
    """Clients judged on rows of their own, or all on one pool with weights of their own."""

    clients: int
    rows: int  # of each client, or of the pool
    shared: bool

    def __str__(self) -> str:
        where = (
            f"one pool of {self.rows} rows, weighted" if self.shared else f"{self.rows} rows each, disjoint"
        )
        return f"{self.clients} clients, {where}"

    @property
    def gains(self) -> Array:
        return np.linspace(0.0, 0.06, self.clients)

    def draw(self, rng: np.random.Generator) -> Iterator[tuple[npt.NDArray[np.int64], Bools, Bools, Array]]:
        """For each client its rows, both outcomes and the weights."""
        return self._pool(rng) if self.shared else self._disjoint(rng)

    def _disjoint(
        self, rng: np.random.Generator
    ) -> Iterator[tuple[npt.NDArray[np.int64], Bools, Bools, Array]]:
        for client, gain in enumerate(self.gains):
            before, after = outcomes(np.ones(self.rows), gain, rng)
            ids = np.arange(client * self.rows, (client + 1) * self.rows)
            yield ids, before, after, np.full(self.rows, 1 / self.rows)

    def _pool(self, rng: np.random.Generator) -> Iterator[tuple[npt.NDArray[np.int64], Bools, Bools, Array]]:
        """Half of what decides an outcome is common to all clients, as of models that learnt together."""
        ids, features = np.arange(self.rows), rng.normal(size=(self.rows, 10))
        common, common_both = rng.random((2, self.rows))
        for gain in self.gains:
            direction = rng.normal(size=10)
            weights = np.exp(TILT * features @ (direction / np.linalg.norm(direction)))
            own = rng.random(self.rows) < 0.5
            place, both = (np.where(own, rng.random(self.rows), one) for one in (common, common_both))
            win, lose = place < LOSSES + gain, place > 1 - LOSSES
            yield (
                ids,
                ((both < 0.7) & ~win) | lose,
                ((both < 0.7) & ~lose) | win,
                weights / weights.sum(),
            )


JUDGED = (
    *(Judged(clients, rows, False) for clients in (2, 10, 50) for rows in (15, 100, 500)),
    *(Judged(clients, rows, True) for clients in (2, 10, 50) for rows in (360, 2000)),
)


@dataclass(frozen=True)
class Scores:
    """Accuracies of clients with a known CF; skewed: those before joining are one minus exponential."""

    clients: int
    cf: float
    shape: str

    def __str__(self) -> str:
        return f"{self.clients} clients, CF {self.cf:g}, {self.shape} accuracies"

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array]:
        size = self.clients
        before = rng.normal(size=size) if self.shape == "normal" else 1 - rng.exponential(size=size)
        r = self.cf / 100
        return before, r * before + math.sqrt(1 - r * r) * rng.normal(size=size)
