"""A dataset divided among clients so that no base row is on two sides.

The base rows are split into train, validation and test pools first; every client's train part is then drawn
from the train pool and its test part from the test pool. A row drawn twice repeats inside its pool only.
Under a generated shift a client's test part is the whole test pool, with a weight for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedakd.audit import audit, check
from fedakd.errors import PartitionError
from fedakd.partition.contract import (
    ClientShift,
    Evaluation,
    Partition,
    Plan,
    Request,
    Rows,
    Shifted,
    UnluckyPlan,
    Weighing,
    Weights,
)
from fedakd.partition.groups import ByGroup
from fedakd.partition.names import parse, text
from fedakd.partition.request import check_numbers, check_parts, check_room, check_rows, check_weights, share
from fedakd.partition.tilt import effective_size
from fedakd.threads import one_blas_thread

if TYPE_CHECKING:
    from fedakd.examples import Examples

POOLS, PLAN, TRAIN, TEST = range(4)  # purposes of the random streams derived from one seed
REDRAWS = 100


class Dataset(Protocol):
    """Rows with labels 0 to classes - 1, and the tensors a model sees of them.

    It may also carry `groups`, one per row, which the partition `group` makes its clients.
    """

    @property
    def name(self) -> str: ...
    @property
    def classes(self) -> int: ...
    @property
    def x(self) -> NDArray[Any]: ...
    @property
    def y(self) -> NDArray[np.int64]: ...
    def examples(self, rows: Rows) -> Examples: ...


@dataclass(frozen=True, eq=False)
class Federation:
    """Row indices of every client and of the server; an index may repeat within one pool.

    `weights` holds, for each client, the weights of its test rows, which sum to 1; without it all rows of a
    client count equally.
    """

    dataset: Dataset
    partition: str
    seed: int
    train: tuple[Rows, ...]
    test: tuple[Rows, ...]
    validation: Rows
    global_test: Rows
    evaluation: Evaluation = "local"
    shifts: tuple[ClientShift, ...] | None = None
    warnings: tuple[str, ...] = ()
    leaky: bool = False
    weights: tuple[Weights, ...] | None = None

    @property
    def clients(self) -> int:
        return len(self.train)

    def test_rows(self, client: int) -> Rows:
        """The rows this client's model is judged on: its own, or the common ones."""
        return self.test[client] if self.evaluation == "local" else self.global_test

    def test_weights(self, client: int) -> Weights | None:
        """The weights of those rows; None if all count equally, as common ones do."""
        return self.weights[client] if self.weights and self.evaluation == "local" else None

    def effective_test_rows(self, client: int) -> float:
        """How many equally weighted rows carry as much (Kish); the copies of a row count as one row."""
        _, places = np.unique(self.test_rows(client), return_inverse=True)
        weights = self.test_weights(client)
        total: Weights = np.bincount(places, np.ones(len(places)) if weights is None else weights).astype(
            float
        )
        return effective_size(total)


class Pools(NamedTuple):
    """Base rows, each in exactly one pool."""

    train: Rows
    validation: Rows
    test: Rows


def federate(
    dataset: Dataset,
    partition: Partition | str,
    clients: int,
    *,
    ratio: Sequence[float] = (7, 1, 2),
    fraction: float = 1.0,
    scale: float = 1.0,
    seed: int = 0,
) -> Federation:
    """Divide a dataset among clients; `fraction` of each pool's size is given out over all clients.

    `scale` makes the training parts smaller still and leaves what clients are judged on as it is. How precise
    scores are is another matter: under a shift few test rows may carry most of the weight, and the audit says
    how many effective rows each client is judged on.

    The pools depend on the dataset, the ratio and the seed alone, whatever the partition and its clients.
    """
    check_numbers(clients, ratio, fraction, scale, seed)
    check_rows(dataset.name, dataset.x, dataset.y, dataset.classes)
    check_room(len(dataset.y), clients, ratio, fraction, scale)
    partition = _bound(parse(partition) if isinstance(partition, str) else partition, dataset)
    pools = split_pools(dataset.y, ratio, _stream(seed, POOLS))
    with one_blas_thread():  # or a few draws would depend on the number of threads
        drawn = _drawn(partition, dataset, pools, clients, (fraction, scale), seed)
        shifts = drawn.plan.shifts(drawn.train) if isinstance(drawn.plan, Shifted) else None
    judged: Evaluation = getattr(partition, "evaluation", "local")
    warnings = tuple(getattr(drawn.plan, "warnings", ()))
    parts = (tuple(drawn.train), tuple(drawn.test), pools.validation, pools.test)
    described = (judged, shifts, warnings)
    federation = Federation(dataset, text(partition), seed, *parts, *described, weights=drawn.weights)
    check(audit(federation))
    return federation


def split_pools(y: NDArray[np.int64], ratio: Sequence[float], rng: np.random.Generator) -> Pools:
    """Every row in one of three pools, each class divided in the ratio up to a row or two.

    The shuffled rows are lined up by label and the pools take turns along the line, each as often as its
    share, so classes of one or two rows need no special care.
    """
    line = rng.permutation(len(y))
    line = line[np.argsort(y[line], kind="stable")]
    cumulated = np.cumsum([0.0, *ratio]) / sum(ratio)
    sizes = np.diff(np.rint(cumulated * len(y)).astype(int))
    due = np.concatenate([(np.arange(size) + 0.5) / max(size, 1) for size in sizes])
    turns = np.repeat(np.arange(3), sizes)[np.argsort(due, kind="stable")]
    train, validation, test = (np.sort(line[turns == pool]) for pool in range(3))
    return Pools(train, validation, test)


class Drawn(NamedTuple):
    """A plan and the parts that it gives each client."""

    plan: Plan
    train: list[Rows]
    test: list[Rows]
    weights: tuple[Weights, ...] | None


def _drawn(
    partition: Partition, dataset: Dataset, pools: Pools, clients: int, shares: tuple[float, float], seed: int
) -> Drawn:
    """The first plan that leaves no client without rows, and its parts."""
    failure = PartitionError("")
    for attempt in range(REDRAWS):
        try:
            return _attempt(partition, dataset, pools, clients, shares, (seed, attempt))
        except UnluckyPlan as error:
            failure = error
    raise PartitionError(f"{failure} ({REDRAWS} plans were tried)")


def _attempt(
    partition: Partition,
    dataset: Dataset,
    pools: Pools,
    clients: int,
    shares: tuple[float, float],  # fraction and scale
    seed: tuple[int, int],
) -> Drawn:
    (fraction, scale), (number, attempt) = shares, seed
    rows = (dataset.x, dataset.y, pools.train, pools.test)
    total, unscaled = (share(own, len(pools.train)) for own in (fraction * scale, fraction))
    request = Request(*rows, clients, total, unscaled, test_total=share(fraction, len(pools.test)))
    plan = partition.plan(request, _stream(number, PLAN, attempt))
    train = plan.draw(pools.train, request.total, _stream(number, TRAIN, attempt))
    test, weights = _judged(plan, pools.test, request, _stream(number, TEST, attempt))
    for pool, parts in (("train", train), ("test", test)):
        check_parts(pool, parts, clients)
    return Drawn(plan, train, test, weights)


def _judged(
    plan: Plan, pool: Rows, request: Request, rng: np.random.Generator
) -> tuple[list[Rows], tuple[Weights, ...] | None]:
    """The test rows of each client, and their weights if the plan has any."""
    if not isinstance(plan, Weighing):
        return plan.draw(pool, request.test_total, rng), None
    weights = tuple(plan.weigh(pool, request.test_total))
    check_weights(weights, len(pool), request.clients)
    return [pool] * request.clients, weights


def _stream(*key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(list(key)))


def _bound(partition: Partition, dataset: Dataset) -> Partition:
    """The groups of a dataset are known to the dataset; a text cannot carry them."""
    if isinstance(partition, ByGroup) and partition.groups is None:
        return replace(partition, groups=getattr(dataset, "groups", None))
    if getattr(partition, "needs_every_class", False):
        missing = np.setdiff1d(np.arange(dataset.classes), dataset.y)
        if len(missing):
            absent = f"{dataset.name} has no row of class {missing[0]}"
            raise PartitionError(f"{text(partition)} needs rows of every class, but {absent}")
    return partition
