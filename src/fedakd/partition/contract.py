"""What a partition is: a plan made once on the train pool, then drawn from each pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import PartitionError

Rows = NDArray[np.int64]
Labels = NDArray[np.int64]
Features = NDArray[np.float64]
Weights = NDArray[np.float64]
Evaluation = Literal["local", "global"]


@dataclass(frozen=True, eq=False)
class Request:
    """The rows a partition divides, and how many of them it will give out."""

    x: NDArray[Any]
    y: Labels
    train: Rows  # base rows of the train pool; whatever is fitted is fitted on these
    test: Rows  # base rows of the test pool
    clients: int
    total: int  # training rows that clients are given altogether
    unscaled: int  # the same if `scale` were 1
    test_total: int  # test rows of all clients altogether


class Plan(Protocol):
    """How rows go to clients; drawing twice with equal generators gives equal parts."""

    def draw(self, rows: Rows, total: int, rng: np.random.Generator) -> list[Rows]:
        """One index array per client, `total` rows altogether, all out of these base rows."""
        ...


class Partition(Protocol):
    """A frozen dataclass whose fields are its parameters.

    It may also carry `evaluation`, "local" unless said otherwise: whether clients are judged on their own
    test part or all on one common test set.
    """

    def plan(self, request: Request, rng: np.random.Generator) -> Plan:
        """How the rows of any pool go to clients; nothing may be fitted on rows outside the train pool."""
        ...


@dataclass(frozen=True)
class ClientShift:
    """How far one client's rows are from the pool they came from."""

    requested: float  # nan if a KL was asked for instead
    realised: float  # squared length of the weighted mean of the train pool, in whitened space
    drawn: float  # the same of the rows drawn
    alignment: float  # cosine between the weighted mean and the direction asked for
    effective_size: float  # (sum w)^2 / sum w^2 over the train pool
    effective_share: float  # of the client's rows at scale 1
    distinct: int
    label_kl: float
    gaussian_kl: float  # infinite when the rows drawn span fewer dimensions than the pool
    tried: int  # directions looked at
    test_realised: float = math.nan  # as `realised`, of the test pool under the same weights
    test_error: float = math.nan  # standard error of the difference between both
    reach: float = math.nan  # largest c, or KL if that was asked, along the direction taken; none by `ratio`
    furthest: float = math.nan  # the same over all directions tried
    kl_requested: float = math.nan
    kl_realised: float = math.nan  # of the Gaussian fitted to the weighted train pool, from the pool's
    cov_requested: float = math.nan
    cov_realised: float = math.nan  # what the covariances alone contribute to that divergence
    cov_reach: float = math.nan  # largest c_cov beside this c, along the direction taken
    test_size: int = 0  # test rows the client has by its size; it is judged on more, see `Weighing`
    test_effective: float = math.nan  # (sum w)^2 / sum w^2 over the test pool
    test_needed: float = math.nan  # the least effective test rows that are accepted without force


@runtime_checkable
class Shifted(Protocol):
    """A plan that can tell how far each client is shifted."""

    def shifts(self, parts: Sequence[Rows]) -> tuple[ClientShift, ...]:
        """One diagnosis per client, of the train parts drawn and of both pools under its weights."""
        ...


@runtime_checkable
class Weighing(Protocol):
    """A plan whose clients are all judged on every row of the test pool, each with weights of its own.

    Weights use all rows of the pool, where draws by the same weights repeat some and miss others;
    `benchmarks/judging.py` compares them.
    """

    def weigh(self, rows: Rows, total: int) -> list[Weights]:
        """One weight per row for each client, summing to 1; `total` test rows belong to all clients."""
        ...


class UnluckyPlan(PartitionError):
    """This plan left a client without rows; another plan of the same partition may not."""
