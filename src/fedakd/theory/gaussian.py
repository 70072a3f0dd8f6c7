"""Theorem 2 as printed, what is right in its place, and what a fit from few rows adds.

Let p = N(m + dm, S + dS), q = N(m, S) and E = S^-1 dS. Since ln det(I + E) is the sum of -(-1)^n tr(E^n) / n,
  KL(p || q) = 1/2 dm' S^-1 dm + 1/4 tr E^2 - 1/6 tr E^3 + 1/8 tr E^4 - ...
Theorem 2 of the KDD 2025 paper differs in three places (see `DEVIATIONS`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma

from fedakd.errors import FedakdError
from fedakd.gaussians import Gaussian, kl, moments

DEVIATIONS = {
    "norm": "1/4 ||S^-1 dS S^-1||_F^2 stands for 1/4 tr(E^2); they agree for S = I alone",
    "cubic": "-1/2 tr(E^3) stands for -1/6 tr(E^3): three times too much",
    "mean": "a factor (I - dS S^-1) in the mean term, which the divergence does not have",
}


def theorem2(p: Gaussian, q: Gaussian, rows: int | None = None) -> float:
    """Theorem 2 to the letter, for KL(p || q); with `rows`, p is fitted from that many."""
    dm, ds = p.mean - q.mean, p.covariance - q.covariance
    inverse = np.linalg.inv(q.covariance)  # as printed
    e = ds @ inverse
    norm = np.sum((inverse @ ds @ inverse) ** 2) / 4
    cubic = -np.trace(e @ e @ e) / 2
    mean = dm @ inverse @ (np.eye(q.dims) - e) @ dm / 2
    return float(norm + cubic + mean) + _sampled(p.dims, rows)


def expansion(p: Gaussian, q: Gaussian, rows: int | None = None, order: int = 3) -> float:
    """KL(p || q) up to terms of this order in the perturbation."""
    if order < 2:
        raise FedakdError(f"the expansion begins with terms of order 2, got order {order}")
    half = np.linalg.cholesky(q.covariance)
    gap = np.linalg.solve(half, p.mean - q.mean)
    e = np.linalg.solve(half, np.linalg.solve(half, p.covariance - q.covariance).T)  # S^-1/2 dS S^-1/2
    spectrum = np.linalg.eigvalsh((e + e.T) / 2)
    terms = [(-1) ** n * np.sum(spectrum**n) / (2 * n) for n in range(2, order + 1)]
    return float(gap @ gap / 2 + sum(terms)) + _sampled(p.dims, rows)


def sampling(dims: int, rows: int) -> float:
    """What a fit from A rows adds to the divergence, on average and for many rows: M(M+3) / 4A.

    >>> sampling(dims=5, rows=100)
    0.1
    """
    return dims * (dims + 3) / (4 * rows)


def sampling_exact(dims: int, rows: int) -> float:
    """The same for any number of rows above the dims; it adds to KL(p || q) whatever p and q are.

    For p^ fitted by `moments`, tr(S^-1 S^) and the mean's part add up to what they are for p. What remains
    is E ln det of a Wishart matrix, a sum of digammas.
    """
    if rows <= dims:
        return math.inf
    freedom = (rows - np.arange(1, dims + 1)) / 2
    return float(-(digamma(freedom).sum() + dims * math.log(2 / rows)) / 2)


def simulated(dims: int, rows: int, repeats: int, rng: np.random.Generator) -> tuple[float, float]:
    """The mean divergence of a fit from what it was fitted to, and its standard error.

    The standard normal stands for all: neither the fit nor the divergence minds affine maps.
    """
    true = Gaussian(np.zeros(dims), np.eye(dims))
    found = [kl(moments(rng.standard_normal((rows, dims))), true) for _ in range(repeats)]
    return float(np.mean(found)), float(np.std(found, ddof=1) / math.sqrt(repeats))


@dataclass(frozen=True)
class Compared:
    """One pair of normal distributions: the divergence, and what two formulas say of it."""

    dims: int
    size: float  # of the perturbation, in units of the standard deviation
    exact: float
    theorem2: float
    expansion: float

    @property
    def theorem2_error(self) -> float:
        return self.theorem2 / self.exact - 1

    @property
    def expansion_error(self) -> float:
        return self.expansion / self.exact - 1


def compared(dims: Sequence[int], sizes: Sequence[float], rng: np.random.Generator) -> list[Compared]:
    """Exact, printed and corrected, for one direction a dimension and every size along it."""
    rows = []
    for m in dims:
        base, along = some(m, rng), direction(m, rng)
        for size in sizes:
            p = perturbed(base, along, size)
            rows.append(Compared(m, size, kl(p, base), theorem2(p, base), expansion(p, base)))
    return rows


def some(dims: int, rng: np.random.Generator) -> Gaussian:
    """A normal distribution whose variances lie between 1/2 and 2, about axes of any direction."""
    axes = np.linalg.qr(rng.standard_normal((dims, dims)))[0]
    spread = 2 ** rng.uniform(-1, 1, dims)
    return Gaussian(rng.standard_normal(dims), axes * spread @ axes.T)


def direction(dims: int, rng: np.random.Generator) -> Gaussian:
    """Of length 1, and for the covariance of spectral norm 1, where the base is the standard normal."""
    mean, root = rng.standard_normal(dims), rng.standard_normal((dims, dims))
    symmetric = root + root.T
    return Gaussian(mean / np.linalg.norm(mean), symmetric / np.abs(np.linalg.eigvalsh(symmetric)).max())


def perturbed(base: Gaussian, along: Gaussian, size: float) -> Gaussian:
    """The base moved along a direction; sizes below 1 leave the covariance positive definite."""
    half = np.linalg.cholesky(base.covariance)
    covariance = base.covariance + size * half @ along.covariance @ half.T
    return Gaussian(base.mean + size * half @ along.mean, covariance)


def _sampled(dims: int, rows: int | None) -> float:
    return 0.0 if rows is None else sampling(dims, rows)
