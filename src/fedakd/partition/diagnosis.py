"""How far rows drawn are from the pool they came from."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedakd.partition.contract import Features, Labels


def label_kl(drawn: Labels, pool: Labels) -> float:
    """KL divergence of the drawn labels from the pool's; every drawn label is in the pool.

    >>> round(label_kl(np.array([0, 0]), np.array([0, 1])), 6)
    0.693147
    """
    classes = int(pool.max()) + 1
    p = np.bincount(drawn, minlength=classes) / len(drawn)
    q = np.bincount(pool, minlength=classes) / len(pool)
    some = p > 0
    return float(np.sum(p[some] * np.log(p[some] / q[some])))


def rows_kl(drawn: Features, pool: Features) -> float:
    """KL divergence between the Gaussians fitted to both; infinite if the drawn rows span too little."""
    covariance = np.atleast_2d(np.cov(drawn, rowvar=False, bias=True))
    spread = np.linalg.eigvalsh(covariance)
    if spread[0] <= len(spread) * np.finfo(np.float64).eps * max(spread[-1], 1.0):
        return math.inf
    pool_covariance = np.atleast_2d(np.cov(pool, rowvar=False, bias=True))
    return gaussian_kl(drawn.mean(axis=0), covariance, pool.mean(axis=0), pool_covariance)


def gaussian_kl(
    mean: Features, covariance: NDArray[np.float64], mean0: Features, covariance0: NDArray[np.float64]
) -> float:
    """KL(N(mean, covariance) || N(mean0, covariance0)), exact, through Cholesky factors.

    >>> one, two = np.eye(1), 2 * np.eye(1)
    >>> round(gaussian_kl(np.ones(1), two, np.zeros(1), one), 6)
    0.653426
    """
    half = np.linalg.cholesky(covariance)
    half0 = np.linalg.cholesky(covariance0)
    ratio = np.linalg.solve(half0, half)
    gap = np.linalg.solve(half0, mean - mean0)
    log_det = 2 * np.log(np.diag(half) / np.diag(half0)).sum()
    return float(0.5 * (np.sum(ratio**2) - len(mean) + gap @ gap - log_det))


def cosine(a: Features, b: Features) -> float:
    """The cosine of the angle between two vectors; nan if either is zero."""
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length > 0 else math.nan
