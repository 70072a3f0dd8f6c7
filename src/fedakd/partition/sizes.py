"""Partitions that differ in size only: equal parts (IID) and the power law (POW)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedakd.errors import PartitionError
from fedakd.partition.contract import Request, Rows


def power_law(total: int, clients: int, exponent: float = 1.0) -> list[int]:
    """Sizes proportional to 1 / k**exponent with sum `total`; what rounding leaves goes to the first clients.

    >>> power_law(30000, 10)
    [10243, 5122, 3415, 2560, 2048, 1707, 1463, 1280, 1138, 1024]
    >>> power_law(10, 3, exponent=0)
    [4, 3, 3]
    """
    weights = [float(k) ** -exponent for k in range(1, clients + 1)]
    scale = sum(weights)
    floors = [math.floor(total * weight / scale) for weight in weights]
    left = total - sum(floors)
    return [size + (k < left) for k, size in enumerate(floors)]


@dataclass(frozen=True)
class PowerLaw:
    """POW: the same distribution everywhere, sizes proportional to 1 / k**exponent, no row twice."""

    exponent: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.exponent <= MOST_SKEWED:
            raise PartitionError(f"exponent must be between 0 and {MOST_SKEWED:g}, got {self.exponent}")

    def plan(self, request: Request, rng: np.random.Generator) -> Sliced:
        return Sliced(request.clients, self.exponent)


@dataclass(frozen=True)
class Equal:
    """IID: the same distribution and the same size everywhere, no row twice."""

    def plan(self, request: Request, rng: np.random.Generator) -> Sliced:
        return Sliced(request.clients, 0.0)


@dataclass(frozen=True)
class Sliced:
    """Shuffled rows, cut into consecutive slices."""

    clients: int
    exponent: float

    def draw(self, rows: Rows, total: int, rng: np.random.Generator) -> list[Rows]:
        sizes = filled_sizes(total, self.clients, self.exponent)
        return cut(rng.permutation(rows)[:total], sizes)


def filled_sizes(total: int, clients: int, exponent: float) -> list[int]:
    """The power-law sizes, none of them empty."""
    sizes = power_law(total, clients, exponent)
    if min(sizes) == 0:
        scale = sum(float(k) ** -exponent for k in range(1, clients + 1))
        enough = math.ceil(scale * float(clients) ** exponent)
        fitting = next((k for k in range(clients - 1, 0, -1) if min(power_law(total, k, exponent))), 0)
        raise PartitionError(
            f"{total} rows leave client {sizes.index(0)} of {clients} with none (sizes like 1/k**{exponent:g}"
            f"); {enough} rows would do, or at most {fitting} clients"
        )
    return sizes


def cut(rows: Rows, sizes: list[int]) -> list[Rows]:
    """Consecutive slices of the given sizes."""
    return np.split(rows, np.cumsum(sizes)[:-1])


MOST_SKEWED = 10.0  # beyond it the second client of any real dataset is empty, and k**exponent may overflow
