"""The rows a covariate shift gives each client, and how far they are from their pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedakd.errors import PartitionError
from fedakd.gaussians import kl, moments
from fedakd.partition.contract import ClientShift, Features, Labels, Rows, Weights
from fedakd.partition.diagnosis import cosine, covariance_kl, label_kl, rows_kl, weighted_moments
from fedakd.partition.search import Choice
from fedakd.partition.sizes import filled_sizes
from fedakd.partition.tilt import draw, squared_shift

if TYPE_CHECKING:
    from fedakd.partition.shift import GaussianShift


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
        self._check_room(sizes[0], len(rows))
        return [
            rows[draw(choice.tilt.logs(z), size, self.partition.replacement, stream)]
            for choice, size, stream in zip(self.choices, sizes, streams, strict=True)
        ]

    def weigh(self, rows: Rows, total: int) -> list[Weights]:
        sizes = filled_sizes(total, len(self.choices), self.partition.exponent)
        self._check_room(sizes[0], len(rows))
        z = self.z[rows]
        pairs = zip(self.choices, sizes, strict=True)
        return [self.partition.shares(size)(choice.tilt.logs(z)) for choice, size in pairs]

    def _check_room(self, size: int, rows: int) -> None:
        if not self.partition.replacement and size > rows:
            raise PartitionError(f"{size} rows without replacement were asked of a pool of {rows}")

    def shifts(self, parts: Sequence[Rows]) -> tuple[ClientShift, ...]:
        return tuple(self._shift(choice, part) for choice, part in zip(self.choices, parts, strict=True))

    def _shift(self, choice: Choice, part: Rows) -> ClientShift:
        asked, guard, drawn = self.partition, choice.guard, self.z[part]
        pool, test = guard.train, guard.test
        weights = guard.shares(choice.tilt.logs(pool))
        held_out = guard.test_shares(choice.tilt.logs(test)) if len(test) else test[:, 0]
        moved, base = weighted_moments(weights, pool), moments(pool)
        return ClientShift(
            requested=math.nan if asked.c is None else asked.c,
            realised=squared_shift(weights, pool),
            drawn=squared_shift(np.full(len(part), 1 / len(part)), drawn),
            alignment=cosine(weights @ pool, choice.direction),
            effective_size=choice.effective,
            effective_share=choice.effective / guard.size,
            distinct=len(np.unique(part)),
            label_kl=label_kl(self.y[part], self.y[self.train]),
            gaussian_kl=rows_kl(drawn, pool),
            tried=choice.tried,
            test_realised=squared_shift(held_out, test) if len(test) else math.nan,
            test_error=math.hypot(_error(weights, pool), _error(held_out, test)) if len(test) else math.nan,
            reach=choice.reach,
            furthest=choice.furthest,
            kl_requested=math.nan if asked.kl is None else asked.kl,
            kl_realised=kl(moved, base),
            cov_requested=math.nan if asked.c_cov is None else asked.c_cov,
            cov_realised=covariance_kl(moved, base),
            cov_reach=choice.cov_reach,
            test_size=guard.test_size,
            test_effective=choice.test_effective if len(test) else math.nan,
            test_needed=guard.needed if len(test) else math.nan,
        )


def _error(shares: Features, z: Features) -> float:
    """The standard error of a squared shift, to first order in that of the weighted mean."""
    mean = np.einsum("n,nd->d", shares, z)
    return float(2 * np.sqrt(np.sum(np.square(shares * ((z - mean) @ mean)))))
