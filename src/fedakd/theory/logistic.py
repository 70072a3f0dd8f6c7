"""Federations of regularised logistic regression, whose optimum is known to the last digit.

Labels are 0 or 1 with logit x'w, as in the paper's convergence analysis; the last column of x is constant.
The objective is F(w) = mean cross-entropy + decay / 2 |w|^2 over all rows, which is what clients weighted by
rows descend together when weight decay is part of their steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor, nn

from fedakd.errors import FedakdError
from fedakd.gaussians import Array

NEWTON_STEPS = 100
PRECISION = 1e-10  # of the gradient's norm


@dataclass(frozen=True, eq=False)
class Rows:
    """One client's inputs (n, d) and labels (n,), 0 or 1."""

    x: Array
    y: Array

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Logistic:
    """The clients' rows, and the penalty."""

    clients: tuple[Rows, ...]
    decay: float

    @property
    def dims(self) -> int:
        return int(self.clients[0].x.shape[1])

    @property
    def shares(self) -> Array:
        """Each client's part of all rows: its weight in the mean over clients."""
        sizes = [len(rows) for rows in self.clients]
        return np.array(sizes, dtype=np.float64) / sum(sizes)

    @property
    def pool(self) -> Rows:
        return Rows(
            np.concatenate([rows.x for rows in self.clients]),
            np.concatenate([rows.y for rows in self.clients]),
        )


def federation(
    clients: int, dims: int, rows: int, heterogeneity: float, decay: float, rng: np.random.Generator
) -> Logistic:
    """Client k has rows / k rows, inputs about a centre and labels by weights of its own.

    Heterogeneity is how far centres and weights lie from the common ones; at 0 all rows are drawn alike.
    """
    if decay <= 0:
        raise FedakdError(f"strong convexity needs a penalty above 0, got decay {decay}")
    common = rng.standard_normal(dims)
    parts = []
    for k in range(clients):
        n = max(rows // (k + 1), 2)
        centre, own = (heterogeneity * rng.standard_normal(dims) / np.sqrt(dims) for _ in range(2))
        x = np.c_[centre + rng.standard_normal((n, dims)), np.ones(n)]
        y = rng.uniform(size=n) < expit(x[:, :-1] @ (common + own))
        parts.append(Rows(x, y.astype(np.float64)))
    return Logistic(tuple(parts), decay)


def risk(w: Array, rows: Rows, decay: float) -> float:
    """F on these rows."""
    z = rows.x @ w
    return float(np.mean(np.logaddexp(0, z) - rows.y * z) + decay / 2 * w @ w)


def gradient(w: Array, rows: Rows, decay: float) -> Array:
    """Of F on these rows; labels may be probabilities, so this serves for distillation too."""
    return rows.x.T @ (expit(rows.x @ w) - rows.y) / len(rows) + decay * w


def hessian(w: Array, rows: Rows, decay: float) -> Array:
    p = expit(rows.x @ w)
    return (rows.x.T * (p * (1 - p))) @ rows.x / len(rows) + decay * np.eye(len(w))


def optimum(rows: Rows, decay: float) -> Array:
    """Where F is smallest, by damped Newton steps until the gradient's norm is below 1e-10."""
    w = np.zeros(rows.x.shape[1])
    for _ in range(NEWTON_STEPS):
        slope = gradient(w, rows, decay)
        if np.linalg.norm(slope) < PRECISION / 10:
            return w
        w = _descended(w, slope, rows, decay)
    if np.linalg.norm(gradient(w, rows, decay)) < PRECISION:
        return w
    raise FedakdError(f"Newton's method did not settle in {NEWTON_STEPS} steps; a larger decay helps")


def _descended(w: Array, slope: Array, rows: Rows, decay: float) -> Array:
    """Newton's step, halved until it descends by a quarter of what the slope promises."""
    step = np.linalg.solve(hessian(w, rows, decay), slope)
    start, size = risk(w, rows, decay), 1.0
    noise = 1e-14 * max(abs(start), 1.0)  # near the optimum differences of the risk are rounding
    while risk(w - size * step, rows, decay) > start - size / 4 * float(slope @ step) + noise and size > 1e-8:
        size /= 2
    return w - size * step


class Logit(nn.Module):
    """One weight for each column: the logits of two classes are 0 and x'w, and training begins at w = 0."""

    def __init__(self, dims: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dims, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        z = x @ self.weight
        return torch.stack([torch.zeros_like(z), z], dim=1)


def curvatures(places: Iterable[tuple[Array, Rows]], decay: float) -> tuple[float, float]:
    """The smallest and largest curvature of F at these points, each on its rows."""
    spectra = [np.linalg.eigvalsh(hessian(w, rows, decay)) for w, rows in places]
    return float(min(s[0] for s in spectra)), float(max(s[-1] for s in spectra))
