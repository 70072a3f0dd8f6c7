"""Theorem 1 for any smooth family given as a log-density: as printed, and what is right in its place.

Write l', l'' for derivatives of log p along delta at omega, E for means under p_omega. Differentiating
KL(p_{omega + t delta} || p_omega) three times at t = 0 gives
  0,  E l'^2 = delta' I delta,  3 E[l' l''] + 2 E l'^3,
and the Fisher information itself has the derivative delta' (grad I delta) delta = 2 E[l' l''] + E l'^3. Hence
  KL = 1/2 delta' I delta + 1/4 delta' (grad I delta) delta + 1/12 E l'^3 + O(|delta|^4).
Theorem 1 prints 1/2 delta' (grad I delta) delta for the cubic part, which is right where E l'^3 happens to be
three times the derivative of I. It depends on the parameters one writes the family in: for mean parameters
(E[l' l''] = -E l'^3, such as a normal covariance) the right factor is 1/6, for natural ones (E[l' l''] = 0,
such as logistic regression) it is 1/3, for locations with a symmetric density both terms are 0.
R / 2A, for R parameters fitted to A rows, is the usual leading term; it is checked for normal families alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.func import grad, vmap

LogDensity: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (R,), (n, ...) -> (n,)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Points and weights whose weighted sums are means under p_omega: a quadrature, or rows drawn from it."""

    x: Tensor  # (n, ...)
    weights: Tensor  # (n,)


def drawn(x: Tensor) -> Nodes:
    """Rows drawn from p_omega count alike."""
    return Nodes(x, torch.full((len(x),), 1 / len(x), dtype=torch.float64))


def fisher(log_p: LogDensity, omega: Tensor, nodes: Nodes) -> Tensor:
    """The Fisher information at omega, (R, R)."""
    score = _scores(log_p, omega, nodes.x)
    return score.T @ (nodes.weights[:, None] * score)


def fisher_slope(log_p: LogDensity, omega: Tensor, delta: Tensor, nodes: Nodes) -> Tensor:
    """The derivative of the Fisher information along delta, (R, R), its density's change included."""
    score, bend = _scores(log_p, omega, nodes.x), _bends(log_p, omega, delta, nodes.x)
    cross = bend.T @ (nodes.weights[:, None] * score)
    density = score.T @ ((nodes.weights * (score @ delta))[:, None] * score)
    return cross + cross.T + density


def skewness(log_p: LogDensity, omega: Tensor, delta: Tensor, nodes: Nodes) -> float:
    """E l'^3, the third moment of the score along delta."""
    return float(nodes.weights @ (_scores(log_p, omega, nodes.x) @ delta) ** 3)


@dataclass(frozen=True)
class Terms:
    """All that the expansions up to third order are made of."""

    quadratic: float  # delta' I delta
    slope: float  # delta' (grad I delta) delta
    skewness: float  # E l'^3

    @property
    def printed(self) -> float:
        return self.quadratic / 2 + self.slope / 2

    @property
    def corrected(self) -> float:
        return self.quadratic / 2 + self.slope / 4 + self.skewness / 12

    @property
    def factor(self) -> float:
        """What should stand before delta' (grad I delta) delta, where the paper has 1/2."""
        return (self.slope / 4 + self.skewness / 12) / self.slope if self.slope else float("nan")


def terms(log_p: LogDensity, omega: Tensor, delta: Tensor, nodes: Nodes) -> Terms:
    return Terms(
        float(delta @ fisher(log_p, omega, nodes) @ delta),
        float(delta @ fisher_slope(log_p, omega, delta, nodes) @ delta),
        skewness(log_p, omega, delta, nodes),
    )


def theorem1(log_p: LogDensity, omega: Tensor, delta: Tensor, nodes: Nodes, rows: int | None = None) -> float:
    """Theorem 1 to the letter, for KL(p_{omega+delta} || p_omega); with `rows`, fitted from that many."""
    return terms(log_p, omega, delta, nodes).printed + _sampled(len(omega), rows)


def theorem1_corrected(
    log_p: LogDensity, omega: Tensor, delta: Tensor, nodes: Nodes, rows: int | None = None
) -> float:
    """The divergence up to third order, in any parametrisation."""
    return terms(log_p, omega, delta, nodes).corrected + _sampled(len(omega), rows)


def _sampled(parameters: int, rows: int | None) -> float:
    return 0.0 if rows is None else parameters / (2 * rows)


def _scores(log_p: LogDensity, omega: Tensor, x: Tensor) -> Tensor:
    """The gradient of each row's log-density, (n, R)."""
    score: Tensor = vmap(grad(_of_one(log_p)), (None, 0))(omega, x)
    return score


def _bends(log_p: LogDensity, omega: Tensor, delta: Tensor, x: Tensor) -> Tensor:
    """The derivative of each row's score along delta, (n, R): its second derivatives times delta."""
    along = lambda at, row: grad(_of_one(log_p))(at, row) @ delta  # noqa: E731
    bend: Tensor = vmap(grad(along), (None, 0))(omega, x)
    return bend


def _of_one(log_p: LogDensity) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda theta, row: log_p(theta, row[None])[0]
