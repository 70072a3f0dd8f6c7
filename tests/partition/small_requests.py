"""Requests for the tests of single partitions, in which most fields do not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedakd.partition.contract import Labels, Request, Rows


def request(
    x: NDArray[Any],
    y: Labels,
    train: Rows,
    clients: int,
    total: int,
    *,
    unscaled: int | None = None,
    test: Rows | None = None,
    test_total: int = 0,
) -> Request:
    """A request without a test pool and at scale 1, unless these are given."""
    test = np.zeros(0, np.int64) if test is None else test
    return Request(x, y, train, test, clients, total, total if unscaled is None else unscaled, test_total)
