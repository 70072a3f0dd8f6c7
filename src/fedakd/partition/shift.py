"""Covariate shift (BCS with equal sizes, ICS with power-law sizes): FedAKD, KDD 2025, Algorithm 2.

Deviations from the printed algorithm:

- it estimates a covariance on raw features, which is singular for images; we whiten the first `dims`
  principal components, fitted on the train pool alone.
- its weight is the target density instead of target over base, which on Gaussian data moves the mean by half
  of delta and halves the covariance; it is kept as `mode="density"`, the quotient is `mode="ratio"`.
- its C is a length put into the weights; with `mode="calibrated"` the weights are solved for, so that the
  squared Mahalanobis distance between the client's mean and the pool's is C.
- it takes the first delta; directions differ a lot in how many rows they leave, so up to `directions` are
  tried.
- it samples before the split into train and test; we draw each part from its own pool of base rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import PartitionError, unknown
from fedakd.partition import whitening
from fedakd.partition.contract import ClientShift, Features, Labels, Rows
from fedakd.partition.diagnosis import cosine, label_kl, rows_kl
from fedakd.partition.sizes import filled_sizes
from fedakd.partition.tilt import (
    Tilt,
    Weigh,
    calibrated,
    draw,
    effective_size,
    inclusion,
    softmax,
    squared_shift,
    unit,
)

Mode = Literal["calibrated", "ratio", "density"]
Sizes = Literal["equal", "power"]
HEALTHY, LEAST = (
    0.05,
    0.01,
)  # effective size over client size: below the first a warning, below the second an error


@dataclass(frozen=True)
class GaussianShift:
    """Each client's features shifted by a squared Mahalanobis distance `c` in a direction of its own."""

    c: float = 5.0
    sizes: Sizes = "equal"
    mode: Mode = "calibrated"
    dims: int = 10
    replacement: bool = True
    directions: int = 32
    force: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.c < math.inf:
            raise PartitionError(
                f"c, the squared Mahalanobis shift, must be positive and finite, got {self.c}"
            )
        for field, number in (("dims", self.dims), ("directions", self.directions)):
            if number < 1:
                raise PartitionError(f"{field} must be at least 1, got {number}")
        if self.mode not in get_args(Mode):
            raise PartitionError(unknown("mode", self.mode, get_args(Mode)))
        if self.sizes not in get_args(Sizes):
            raise PartitionError(unknown("sizes", self.sizes, get_args(Sizes)))

    def plan(
        self, x: NDArray[Any], y: Labels, train: Rows, clients: int, total: int, rng: np.random.Generator
    ) -> ShiftPlan:
        sizes = filled_sizes(total, clients, self.exponent)
        fit_rng, *client_rngs = rng.spawn(clients + 1)
        white = whitening.fit(x, train, self.dims, fit_rng)
        z = white.features(x)
        if not np.isfinite(z).all():
            raise PartitionError("a covariate shift needs finite features; some rows hold nan or inf")
        pool = z[train]
        found = [self._search(pool, size, stream) for size, stream in zip(sizes, client_rngs, strict=True)]
        choices = self._reached(found, sizes)
        return ShiftPlan(self, z, y, train, choices, (*self._few_dims(white.dims), *_thin(choices, sizes)))

    @property
    def exponent(self) -> float:
        return 1.0 if self.sizes == "power" else 0.0

    def _search(self, z: Features, size: int, rng: np.random.Generator) -> Choice | float:
        """The first direction that leaves enough rows, else the best; the largest reach if none will do."""
        best, reach = None, 0.0
        for tried in range(1, self.directions + 1):
            tilt, far = self._tilt(unit(z.shape[1], rng), z, size)
            reach = max(reach, far)
            effective = effective_size(self.weigh(size)(tilt.logs(z))) if tilt else 0.0
            if tilt and (best is None or effective > best.effective):
                best = Choice(tilt, effective, tried)
            if effective >= HEALTHY * size:
                break
        return reach if best is None else Choice(best.tilt, best.effective, tried)

    def _tilt(self, u: Features, z: Features, size: int) -> tuple[Tilt | None, float]:
        """The weights along `u` and the largest shift there, or none if too few rows would carry them."""
        least, weigh = (0.0 if self.force else LEAST * size), self.weigh(size)
        if self.mode == "calibrated":
            return calibrated(u, z, self.c, least, weigh)
        tilt = Tilt(math.sqrt(self.c) * u, density=self.mode == "density")
        return (tilt if effective_size(weigh(tilt.logs(z))) >= least else None), 0.0

    def weigh(self, size: int) -> Weigh:
        """The share of each row in what a client of this size draws."""
        return softmax if self.replacement else partial(inclusion, size=size)

    def _reached(self, found: Sequence[Choice | float], sizes: Sequence[int]) -> tuple[Choice, ...]:
        choices = tuple(one for one in found if isinstance(one, Choice))
        if len(choices) < len(found):
            failed = [k for k, one in enumerate(found) if not isinstance(one, Choice)]
            reach = min(one for one in found if not isinstance(one, Choice))
            raise PartitionError(self._unreachable(failed[0], sizes[failed[0]], reach))
        return choices

    def _unreachable(self, client: int, size: int, reach: float) -> str:
        thin = (
            ""
            if self.force or not self.replacement
            else f" with an effective size of at least {LEAST:.0%} of its {size} rows"
        )
        works = "a smaller c or fewer dims would do; mode=calibrated tells the largest c"
        if self.mode == "calibrated":
            works = f"c={math.floor(1000 * reach) / 1000:g} is reached by all clients"
        forced = ", and force=True accepts fewer effective rows" if thin else ""
        tried = f"{self.directions} directions in {self.dims} dims"
        return f"client {client} cannot be shifted by c={self.c:g}{thin} ({tried} tried); {works}{forced}"

    def _few_dims(self, dims: int) -> list[str]:
        few = f"the features vary in {dims} dimensions only; the shift uses these instead of dims={self.dims}"
        return [few] if dims < self.dims else []


@dataclass(frozen=True, eq=False)
class Choice:
    """The weights found for one client."""

    tilt: Tilt
    effective: float
    tried: int


@dataclass(frozen=True, eq=False)
class ShiftPlan:
    """One tilt per client, the same for the rows of any pool."""

    partition: GaussianShift
    z: Features  # (all rows, dims)
    y: Labels
    train: Rows
    choices: tuple[Choice, ...]
    warnings: tuple[str, ...]

    def draw(self, rows: Rows, total: int, rng: np.random.Generator) -> list[Rows]:
        sizes = filled_sizes(total, len(self.choices), self.partition.exponent)
        z, streams = self.z[rows], rng.spawn(len(sizes))
        if not self.partition.replacement and sizes[0] > len(rows):
            raise PartitionError(f"{sizes[0]} rows without replacement were asked of a pool of {len(rows)}")
        return [
            rows[draw(choice.tilt.logs(z), size, self.partition.replacement, stream)]
            for choice, size, stream in zip(self.choices, sizes, streams, strict=True)
        ]

    def shifts(self, parts: Sequence[Rows]) -> tuple[ClientShift, ...]:
        return tuple(self._shift(choice, part) for choice, part in zip(self.choices, parts, strict=True))

    def _shift(self, choice: Choice, part: Rows) -> ClientShift:
        pool, drawn = self.z[self.train], self.z[part]
        weights = self.partition.weigh(len(part))(choice.tilt.logs(pool))
        return ClientShift(
            requested=self.partition.c,
            realised=squared_shift(weights, pool),
            drawn=squared_shift(np.full(len(part), 1 / len(part)), drawn),
            alignment=cosine(weights @ pool, choice.tilt.delta),
            effective_size=choice.effective,
            effective_share=choice.effective / len(part),
            distinct=len(np.unique(part)),
            label_kl=label_kl(self.y[part], self.y[self.train]),
            gaussian_kl=rows_kl(drawn, pool),
            tried=choice.tried,
        )


def _thin(choices: Sequence[Choice], sizes: Sequence[int]) -> list[str]:
    """A warning that names the clients whose draws repeat few rows often."""
    shares = {k: one.effective / n for k, (one, n) in enumerate(zip(choices, sizes, strict=True))}
    thin = [k for k, share in shares.items() if share < HEALTHY]
    named = ", ".join(str(k) for k in thin)
    few = f"effective size below {HEALTHY:.0%} of their rows (lowest {min(shares.values()):.1%})"
    return [f"clients {named}: {few}, so few rows repeat often"] if thin else []
