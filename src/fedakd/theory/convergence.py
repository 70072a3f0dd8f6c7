"""Theorem 3: its constants measured on a logistic federation, its r term by term, and why r is negative.

Theorem 3 promises F(w_g^{t+1}) - F* <= (1 - 2 mu r) (F(w_g^t) - F*) where
  r   = a B - L B^2 / 2 reach^2 - a (r_1 + r_2) B > 0,
  a   = 4 / (beta |Omega_2|) + 4 / (alpha |Omega_1|),
  err = (L (1 + gamma) + mu) gamma (1 + theta) / mu,
  reach = err + (1 + theta) + (1 + gamma) beta |Omega_2| / (4 mu),
  r_1 = reach (1 + theta) L + theta + err,
  r_2 = L (1 + gamma) / mu + gamma.
r_2 is at least L / mu, which is at least 1, so the first and the last summand alone are negative together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from fedakd.errors import FedakdError
from fedakd.gaussians import Array
from fedakd.methods.fedakd import FedAKD
from fedakd.theory.contraction import Course, Step
from fedakd.theory.logistic import Logistic, Rows, curvatures, gradient

STATIONARY = 1e-12  # the squared norm of the gradient at which a model counts as a stationary solution


@dataclass(frozen=True)
class Constants:
    """What Theorem 3 is stated in."""

    L: float  # smoothness
    mu: float  # strong convexity
    B: float  # dissimilarity of the clients' gradients
    gamma: float  # inexactness of the local solutions; the theorem asks for at most 1
    theta: float  # dissimilarity of the selected rows
    omega1: float  # |Omega_1|: second moment of all inputs, spectral norm
    omega2: float  # |Omega_2|: of the selected inputs
    alpha: float
    beta: float


@dataclass(frozen=True)
class Rate:
    """r, its summands and what they are made of."""

    a: float
    reach: float
    r_1: float
    r_2: float
    gain: float  # a B
    curvature: float  # - L B^2 / 2 reach^2
    error: float  # - a (r_1 + r_2) B
    r: float
    promise: float  # 1 - 2 mu r: the factor by which the gap is said to shrink; above 1 it says nothing


def rate(c: Constants) -> Rate:
    """r of Theorem 3 to the letter."""
    if min(c.alpha, c.beta) <= 0:
        raise FedakdError(f"Theorem 3 needs alpha and beta above 0, got {c.alpha} and {c.beta}")
    if not c.L >= c.mu > 0:
        raise FedakdError(f"no function has L below mu, and mu is above 0; got L = {c.L}, mu = {c.mu}")
    a = 4 / (c.beta * c.omega2) + 4 / (c.alpha * c.omega1)
    err = (c.L * (1 + c.gamma) + c.mu) * c.gamma * (1 + c.theta) / c.mu
    reach = err + (1 + c.theta) + (1 + c.gamma) * c.beta * c.omega2 / (4 * c.mu)
    r_1 = reach * (1 + c.theta) * c.L + c.theta + err
    r_2 = c.L * (1 + c.gamma) / c.mu + c.gamma
    gain, curvature, error = a * c.B, -c.L * c.B**2 / 2 * reach**2, -a * (r_1 + r_2) * c.B
    r = gain + curvature + error
    return Rate(a, reach, r_1, r_2, gain, curvature, error, r, 1 - 2 * c.mu * r)


def why(c: Constants) -> list[str]:
    """Why r cannot be positive, with the numbers at hand."""
    found = rate(c)
    return [
        f"r_2 = L(1+gamma)/mu + gamma = {found.r_2:.4g} is at least L/mu = {c.L / c.mu:.4g}, and L >= mu for "
        "every smooth, strongly convex loss, so r_2 >= 1.",
        f"r_1 = {found.r_1:.4g} > 0, so aB - a(r_1 + r_2)B = aB(1 - r_1 - r_2) = "
        f"{found.gain + found.error:.4g} < 0.",
        f"The remaining summand is -L B^2/2 (...)^2 = {found.curvature:.4g} < 0.",
        f"So r = {found.r:.4g} < 0 whatever alpha, beta and gamma: the condition r > 0 never holds, and "
        f"1 - 2 mu r = {found.promise:.4g} > 1 promises nothing.",
    ]


def measured(problem: Logistic, method: FedAKD, course: Course) -> list[Constants]:
    """The constants of every round that does not start from a stationary solution.

    Each is taken at the models of that round alone, which is as kind to the theorem as can be: it asks for
    bounds at all w, and there mu is the decay, while B and theta have no bound near the optima.
    """
    if method != FedAKD(alpha=method.alpha, beta=method.beta, select=method.select):
        raise FedakdError(
            f"Theorem 3 is about FedAKD as the paper has it, any alpha, beta and select; got {method}"
        )
    pool = problem.pool
    return [
        _constants(problem, method, step)
        for step in course.steps
        if np.sum(gradient(step.w_g, pool, problem.decay) ** 2) > STATIONARY and all(map(len, step.selected))
    ]


def _constants(problem: Logistic, method: FedAKD, step: Step) -> Constants:
    own = zip(problem.clients, step.selected, step.w_k, step.w_gk, strict=True)
    places = [(w, rows) for *parts, w_k, w_gk in own for rows in parts for w in (step.w_g, w_k, w_gk)]
    mu, smooth = curvatures([(step.w_g, problem.pool), *places], problem.decay)
    return Constants(
        L=smooth,
        mu=mu,
        B=dissimilarity(problem, step.w_g),
        gamma=max(*_inexactness(problem, method, step)),
        theta=_selection(problem, step),
        omega1=_second_moment(problem.clients, problem.shares),
        omega2=_second_moment(step.selected, problem.shares),
        alpha=method.alpha,
        beta=method.beta,
    )


def dissimilarity(problem: Logistic, w: Array) -> float:
    """B(w): the root mean square of the clients' gradients over that of all; infinite at the optimum."""
    squares = [np.sum(gradient(w, rows, problem.decay) ** 2) for rows in problem.clients]
    whole = np.sum(gradient(w, problem.pool, problem.decay) ** 2)
    return float(np.sqrt(problem.shares @ np.array(squares) / whole))


def _inexactness(problem: Logistic, method: FedAKD, step: Step) -> tuple[float, float]:
    """gamma_1 and gamma_2 by their definition: gradient norms at the solution over those at the teacher.

    The definition takes the teacher for the point training starts from. The algorithm starts elsewhere, from
    the client's own last model and from w_g, so these may exceed 1.
    """
    first, second = [], []
    rounds = zip(problem.clients, step.selected, step.w_k, step.w_gk, strict=True)
    for rows, chosen, w_k, w_gk in rounds:
        start = gradient(step.w_g, rows, problem.decay)
        solved = _taught(w_k, step.w_g, rows, method.alpha, problem.decay)
        first.append(np.linalg.norm(solved) / np.linalg.norm(start))
        start = gradient(w_k, chosen, problem.decay)
        solved = _taught(w_gk, w_k, chosen, method.beta, problem.decay)
        second.append(np.linalg.norm(solved) / np.linalg.norm(start))
    return float(max(first)), float(max(second))


def _taught(w: Array, teacher: Array, rows: Rows, weight: float, decay: float) -> Array:
    """The gradient of the penalised loss with distillation at w."""
    soft = Rows(rows.x, expit(rows.x @ teacher))
    return gradient(w, rows, decay) + weight * gradient(w, soft, 0.0)


def _selection(problem: Logistic, step: Step) -> float:
    """theta at the models of this round: how far gradients on the selected rows are from those on all."""
    worst = 0.0
    for rows, chosen, w_k, w_gk in zip(problem.clients, step.selected, step.w_k, step.w_gk, strict=True):
        for w in (step.w_g, w_k, w_gk):
            whole = gradient(w, rows, problem.decay)
            off = gradient(w, chosen, problem.decay) - whole
            worst = max(worst, float(np.linalg.norm(off) / np.linalg.norm(whole)))
    return worst


def _second_moment(parts: tuple[Rows, ...], shares: Array) -> float:
    moments = [rows.x.T @ rows.x / len(rows) for rows in parts]
    return float(np.linalg.norm(np.tensordot(shares, np.array(moments), 1), 2))
