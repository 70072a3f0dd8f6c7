"""Label-shift partitions: the class ladder (CLA) and Dirichlet shares (DIR). No row is given twice.

CLA: the paper fixes the local size and gives client k data of k classes, without saying which or how many
of each. Ours splits a client's rows evenly over its classes and hands every client the classes that are least
in demand so far, ties at random. A row belongs to one client, so scarce classes bound the size: when they run
out before `total` rows are given, all clients shrink alike and a warning says so.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import PartitionError
from fedakd.partition.contract import Evaluation, Labels, Request, Rows, UnluckyPlan

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class ClassLadder:
    """CLA: equal sizes; the first client has one class, the last has all, those between in even steps."""

    evaluation: ClassVar[Evaluation] = "global"
    needs_every_class: ClassVar[bool] = True

    def plan(self, request: Request, rng: np.random.Generator) -> LadderPlan:
        y, clients = request.y, request.clients
        counts = _counts(y, request.train, int(y.max()) + 1)
        steps = np.rint(np.linspace(1, len(counts), clients)).astype(int)
        ranks = np.full((clients, len(counts)), -1)
        demand = np.zeros(len(counts))
        for k, step in enumerate(steps):
            mine = np.lexsort((rng.random(len(counts)), demand))[:step]
            ranks[k, mine] = np.arange(step)
            demand[mine] += 1 / (step * np.maximum(counts[mine], 1))
        return LadderPlan(y, ranks, _shrunk(ranks, counts, request.total))


@dataclass(frozen=True, eq=False)
class LadderPlan:
    """Which classes each client has, first to last; -1 where it has none of a class."""

    y: Labels
    ranks: NDArray[np.int64]  # (clients, classes)
    warnings: tuple[str, ...]

    def draw(self, rows: Rows, total: int, rng: np.random.Generator) -> list[Rows]:
        counts = _counts(self.y, rows, self.ranks.shape[1])
        if (counts == 0).any():
            missing = int(np.flatnonzero(counts == 0)[0])
            raise PartitionError(
                f"CLA needs rows of every class, but class {missing} has none in a pool of {len(rows)}; "
                "leave the class out of the dataset or give the pool a larger part of the ratio"
            )
        size = ladder_size(self.ranks, counts, total)
        self._check(size, len(rows))
        return _deal(_stacks(self.y, rows, len(counts), rng), _ladder_quotas(self.ranks, size))

    def _check(self, size: int, pool: int) -> None:
        clients, classes = self.ranks.shape
        most = int((self.ranks >= 0).sum(axis=1).max())
        if size < most:
            raise PartitionError(
                f"CLA with {clients} clients and {classes} classes needs at least {most} rows per client, "
                f"but a pool of {pool} rows gives {size}; fewer clients, a larger fraction or more rows of "
                "the rarest class would do"
            )


def ladder_size(ranks: NDArray[np.int64], counts: Counts, total: int) -> int:
    """The largest equal size of all clients, up to total / clients, at which no class runs out."""
    sizes = range(total // len(ranks) + 1)
    return bisect_right(
        sizes, False, key=lambda size: bool((_ladder_quotas(ranks, size).sum(axis=0) > counts).any())
    ) - 1  # fmt: skip


def _ladder_quotas(ranks: NDArray[np.int64], size: int) -> Counts:
    """Rows of each class for each client, as even as whole rows allow; the odd ones to its first classes."""
    steps = (ranks >= 0).sum(axis=1, keepdims=True)
    return np.where(ranks >= 0, size // steps + (ranks < size % steps), 0)


def _shrunk(ranks: NDArray[np.int64], counts: Counts, total: int) -> tuple[str, ...]:
    asked, size = total // len(ranks), ladder_size(ranks, counts, total)
    if size == asked:
        return ()
    met = math.floor(100 * size * len(ranks) / counts.sum()) / 100
    return (
        f"CLA: each client has {size} train rows instead of {asked}, as a class runs out and no row is given "
        f"twice; fraction={met:g} is met in full",
    )


@dataclass(frozen=True)
class Dirichlet:
    """DIR: of each class, client k gets a share p_k, the shares drawn from Dirichlet(alpha, ..., alpha)."""

    alpha: float

    evaluation: ClassVar[Evaluation] = "global"

    def __post_init__(self) -> None:
        if not 0 < self.alpha < np.inf:
            raise PartitionError(f"alpha must be positive and finite, got {self.alpha}")

    def plan(self, request: Request, rng: np.random.Generator) -> SharesPlan:
        y = request.y
        shares = rng.dirichlet(np.full(request.clients, self.alpha), size=int(y.max()) + 1)
        return SharesPlan(y, np.nan_to_num(shares.T), self.alpha)  # a tiny alpha may underflow to 0 / 0


@dataclass(frozen=True, eq=False)
class SharesPlan:
    """Each client's share of each class, the same in every pool."""

    y: Labels
    shares: NDArray[np.float64]  # (clients, classes)
    alpha: float

    def draw(self, rows: Rows, total: int, rng: np.random.Generator) -> list[Rows]:
        counts = _counts(self.y, rows, self.shares.shape[1]) * total // max(len(rows), 1)
        quotas = np.floor(self.shares * counts).astype(np.int64)
        empty = np.flatnonzero(quotas.sum(axis=1) == 0)
        if len(empty):
            raise UnluckyPlan(
                f"dir({self.alpha:g}) leaves client {empty[0]} of {len(quotas)} without any of {total} rows; "
                "a larger alpha, fewer clients or a larger fraction would do"
            )
        return _deal(_stacks(self.y, rows, len(counts), rng), quotas)


def _counts(y: Labels, rows: Rows, classes: int) -> Counts:
    return np.bincount(y[rows], minlength=classes)


def _stacks(y: Labels, rows: Rows, classes: int, rng: np.random.Generator) -> list[Rows]:
    """The rows of each class, shuffled."""
    mixed = rng.permutation(rows)
    return [mixed[y[mixed] == label] for label in range(classes)]


def _deal(stacks: Sequence[Rows], quotas: Counts) -> list[Rows]:
    """To each client, its quota from the top of what is left of each stack."""
    ends = quotas.cumsum(axis=0)
    return [
        np.concatenate([stack[end - n : end] for stack, end, n in zip(stacks, until, quota, strict=True)])
        for until, quota in zip(ends, quotas, strict=True)
    ]
