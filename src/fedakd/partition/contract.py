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
Evaluation = Literal["local", "global"]


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

    def plan(
        self,
        x: NDArray[Any],
        y: Labels,
        train: Rows,
        clients: int,
        total: int,
        rng: np.random.Generator,
    ) -> Plan:
        """Whatever is fitted is fitted on the rows `train`; `total` of them will be given to clients."""
        ...


@dataclass(frozen=True)
class ClientShift:
    """How far one client's rows are from the pool they came from."""

    requested: float  # nan if a KL was asked for instead
    realised: float  # squared length of the weighted mean of the train pool, in whitened space
    drawn: float  # the same of the rows drawn
    alignment: float  # cosine between the weighted mean and the direction asked for
    effective_size: float  # (sum w)^2 / sum w^2 over the train pool
    effective_share: float  # of the client's rows
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


@runtime_checkable
class Shifted(Protocol):
    """A plan that can tell how far each client is shifted."""

    def shifts(
        self, parts: Sequence[Rows], tests: Sequence[Rows] | None = None, pool: Rows | None = None
    ) -> tuple[ClientShift, ...]:
        """One diagnosis per client for the train parts it drew, and for the test parts out of their pool."""
        ...


class UnluckyPlan(PartitionError):
    """This plan left a client without rows; another plan of the same partition may not."""
