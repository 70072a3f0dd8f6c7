"""Families whose divergence is known in closed form, written as log-densities for `fisher`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedakd.gaussians import Gaussian, kl
from fedakd.theory.fisher import Nodes, Terms, terms
from fedakd.theory.gaussian import direction, perturbed, some

NORMAL_POINTS = 4  # a quadrature exact up to degree 7; the cube of a normal score has degree 6


def normal_log_p(theta: Tensor, x: Tensor) -> Tensor:
    """The normal family in mean and lower triangle of the covariance; x is (n, M)."""
    mean, covariance = _unpacked(theta, x.shape[1])
    half = torch.linalg.cholesky(covariance)
    z: Tensor = torch.linalg.solve_triangular(half, (x - mean).T, upper=False)  # (M, n)
    log_det: Tensor = 2 * torch.log(torch.diagonal(half)).sum()
    return -(z.square().sum(0) + log_det + x.shape[1] * math.log(2 * math.pi)) / 2


def normal_theta(gaussian: Gaussian) -> Tensor:
    """Mean and lower triangle, (M(M+3)/2,)."""
    lower = np.tril_indices(gaussian.dims)
    return torch.from_numpy(np.concatenate([gaussian.mean, gaussian.covariance[lower]]))


def normal_nodes(gaussian: Gaussian, points: int = NORMAL_POINTS) -> Nodes:
    """A product of Gauss-Hermite quadratures, points^M of them."""
    at, weights = np.polynomial.hermite_e.hermegauss(points)
    z = np.array(list(itertools.product(at, repeat=gaussian.dims)))
    share = np.array(list(itertools.product(weights / weights.sum(), repeat=gaussian.dims))).prod(axis=1)
    x = gaussian.mean + z @ np.linalg.cholesky(gaussian.covariance).T
    return Nodes(torch.from_numpy(x), torch.from_numpy(share))


def logistic_log_p(theta: Tensor, rows: Tensor) -> Tensor:
    """Labels with logit x'theta; a row is x and its label, (n, d + 1)."""
    z = rows[:, :-1] @ theta
    return rows[:, -1] * z - F.softplus(z)


def logistic_nodes(design: Tensor, omega: Tensor) -> Nodes:
    """Every row of the design with either label: means are exact, and per row of the design."""
    label = torch.ones(len(design), 1, dtype=design.dtype)
    chance = torch.sigmoid(design @ omega) / len(design)
    rows = torch.cat([torch.cat([design, label], 1), torch.cat([design, 0 * label], 1)])
    return Nodes(rows, torch.cat([chance, 1 / len(design) - chance]))


def logistic_kl(design: Tensor, theta: Tensor, omega: Tensor) -> float:
    """KL(p_theta || p_omega) of the labels, the mean over the design's rows."""
    z, z0 = design @ theta, design @ omega
    return float((torch.sigmoid(z) * (z - z0) - F.softplus(z) + F.softplus(z0)).mean())


def _unpacked(theta: Tensor, dims: int) -> tuple[Tensor, Tensor]:
    lower = torch.tril_indices(dims, dims)
    zeros = torch.zeros(dims, dims, dtype=theta.dtype)
    triangle = zeros.index_put((lower[0], lower[1]), theta[dims:])
    return theta[:dims], triangle + torch.tril(triangle, -1).T


@dataclass(frozen=True)
class Example:
    """One perturbation of one family: the divergence, and what the expansions are made of."""

    family: str
    size: float
    exact: float
    terms: Terms


def examples(sizes: Sequence[float], seed: int, dims: int = 2) -> list[Example]:
    """A normal family, its covariance alone, and a logistic family, moved by each size."""
    rng = np.random.default_rng(seed)
    base, along = some(dims, rng), direction(dims, rng)
    spread = Gaussian(np.zeros(dims), along.covariance)
    found = [_normal("normal", base, along, size) for size in sizes]
    found += [_normal("normal, covariance", base, spread, size) for size in sizes]
    design, omega, way = (torch.from_numpy(rng.standard_normal(s)) for s in ((50, 3), 3, 3))
    return found + [_logistic(design, omega, size * way / torch.linalg.norm(way), size) for size in sizes]


def _normal(family: str, base: Gaussian, along: Gaussian, size: float) -> Example:
    p, omega = perturbed(base, along, size), normal_theta(base)
    found = terms(normal_log_p, omega, normal_theta(p) - omega, normal_nodes(base))
    return Example(family, size, kl(p, base), found)


def _logistic(design: Tensor, omega: Tensor, delta: Tensor, size: float) -> Example:
    found = terms(logistic_log_p, omega, delta, logistic_nodes(design, omega))
    return Example("logistic", size, logistic_kl(design, omega + delta, omega), found)
