"""Normal distributions fitted to rows, and how far one is from another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import FedakdError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gaussian:
    mean: Array  # (M,)
    covariance: Array  # (M, M)

    @property
    def dims(self) -> int:
        return len(self.mean)


def moments(x: Array) -> Gaussian:
    """The most likely normal distribution of these rows; singular where there are no more rows than dims."""
    mean = x.mean(axis=0)
    centred = x - mean
    return Gaussian(mean, centred.T @ centred / len(x))


def shrunk(x: Array) -> Gaussian:
    """With Ledoit and Wolf's covariance, which is regular however few the rows."""
    from sklearn.covariance import ledoit_wolf  # slow to import

    return Gaussian(x.mean(axis=0), np.asarray(ledoit_wolf(x)[0]))


def kl(p: Gaussian, q: Gaussian) -> float:
    """KL(p || q), exact, through a Cholesky factor of q; infinite where p is flat in some direction.

    >>> one, two = (Gaussian(np.array([m]), s * np.eye(1)) for m, s in ((0.0, 1.0), (1.0, 2.0)))
    >>> round(kl(two, one), 6)
    0.653426
    """
    try:
        half = np.linalg.cholesky(q.covariance)
    except np.linalg.LinAlgError as error:
        raise FedakdError("KL(p || q) needs a q that varies in every direction; leave out others") from error
    seen = np.linalg.solve(half, np.linalg.solve(half, p.covariance).T)  # p's covariance where q's is I
    spread = np.linalg.eigvalsh((seen + seen.T) / 2)
    if spread[0] <= p.dims * np.finfo(np.float64).eps * max(spread[-1], 1.0):
        return math.inf
    gap = np.linalg.solve(half, p.mean - q.mean)
    return float(0.5 * (spread.sum() - p.dims + gap @ gap - np.log(spread).sum()))
