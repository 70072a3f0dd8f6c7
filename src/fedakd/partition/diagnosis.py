"""How far rows drawn are from the pool they came from."""

from __future__ import annotations

import math

import numpy as np

from fedakd.gaussians import Gaussian, kl, moments
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
    return kl(moments(drawn), moments(pool))


def weighted_moments(shares: Features, z: Features) -> Gaussian:
    """The normal distribution fitted to rows with these shares, which sum to 1."""
    mean = np.einsum("n,nd->d", shares, z)
    centred = z - mean
    return Gaussian(mean, (centred * shares[:, None]).T @ centred)


def covariance_kl(p: Gaussian, q: Gaussian) -> float:
    """What the covariances contribute to KL(p || q): (tr S - M - ln det S) / 2 if q is whitened."""
    return kl(Gaussian(q.mean, p.covariance), q)


def cosine(a: Features, b: Features) -> float:
    """The cosine of the angle between two vectors; nan if either is zero."""
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length > 0 else math.nan
