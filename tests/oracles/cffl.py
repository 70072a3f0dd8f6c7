"""CFFL (specification 2.5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np

from oracles.linear import Client, Integers, Matrix, Vector, accuracy, sgd, sizes, weighted_sum
from oracles.masks import top, top_share


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The hyper-parameters; `memory` is the old reputation's share, `horizon` the T of a growing alpha.

    `order` gives the round's permutation of all entries, counted from 0; without one downloads are top-k.
    """

    x_val: Matrix
    y_val: Integers
    upload: float
    clip: float = math.inf
    clip_by: Literal["value", "norm"]
    alpha: float
    growing: bool = False
    horizon: int = 1
    memory: float
    sharpen: Literal["after", "before"]
    expel: float
    expel_by: Literal["share", "constant"]
    aggregate: Literal["sum", "mean"]
    order: Callable[[int], Integers] | None = None


Round = TypedDict(
    "Round",
    {
        "uploads": list[Vector],  # S_k of everybody, the expelled included
        "accuracy": Vector,  # a_k; NaN for the expelled, who are not scored
        "reputation": Vector,  # c
        "reputable": list[int],  # R after the expulsion
        "aggregate": Vector,  # G
        "global": Vector,  # w_g
        "quota": list[int],  # m_k; 0 for the expelled
        "models": list[Vector],  # w_k
    },
)


def clipped(delta: Vector, rules: Rules) -> Vector:
    """Every component clamped to [-clip, clip], or the whole scaled to an L2 norm of at most clip."""
    norm = float(np.linalg.norm(delta))
    scale = rules.clip / norm if norm > rules.clip else 1.0
    return {"value": np.clip(delta, -rules.clip, rules.clip), "norm": scale * delta}[rules.clip_by]


def normalised(c: Vector) -> Vector:
    """c / sum(c); nothing is left to share once everybody is expelled."""
    return c / c.sum() if c.sum() > 0 else c


def first_reputation(count: int, rules: Rules) -> Vector:
    """0 in the original order, 1 / K in the paper's."""
    return {"after": np.zeros(count), "before": np.full(count, 1.0 / count)}[rules.sharpen]


def alpha_at(t: int, rules: Rules) -> float:
    """alpha, or alpha (1 + t / T) with t = 0 in the first round."""
    return rules.alpha * (1.0 + t / rules.horizon) if rules.growing else rules.alpha


def scores(w_g: Vector, uploads: list[Vector], reputable: list[int], rules: Rules) -> Vector:
    """Step 1: a_k = acc(w_g + S_k; V) of the reputable."""
    a = np.full(len(uploads), np.nan)
    for k in reputable:
        a[k] = accuracy(w_g + uploads[k], rules.x_val, rules.y_val)
    return a


def renewed(c: Vector, a: Vector, reputable: list[int], alpha: float, rules: Rules) -> Vector:
    """Step 2: reputations from x_k = a_k / sum_R a; unchanged when that sum is zero."""
    if a[reputable].sum() == 0:
        return c
    x = np.zeros_like(c)
    x[reputable] = a[reputable] / a[reputable].sum()
    if rules.sharpen == "after":
        return normalised(np.sinh(alpha * (rules.memory * c + (1.0 - rules.memory) * x)))
    assert rules.sharpen == "before"
    return normalised(rules.memory * c + (1.0 - rules.memory) * normalised(np.sinh(alpha * x)))


def expelled(c: Vector, reputable: list[int], rules: Rules) -> tuple[Vector, list[int]]:
    """Step 3: c_k = 0 below c_th, for good; c_th depends on R at most through |R| before the expulsion."""
    if not reputable:
        return c, reputable
    threshold = {"share": rules.expel / len(reputable), "constant": rules.expel}[rules.expel_by]
    kept = [k for k in reputable if c[k] >= threshold]
    if len(kept) == len(reputable):
        return c, reputable
    rest = np.zeros_like(c)
    rest[kept] = c[kept]
    return normalised(rest), kept


def summed(uploads: list[Vector], n: Vector, reputable: list[int], rules: Rules) -> Vector:
    """Step 4: G = sum_R omega_k S_k, with omega_k = 1 or n_k over the n of ALL clients."""
    omega = {"sum": np.ones_like(n), "mean": n / n.sum()}[rules.aggregate]
    membership = np.zeros_like(n)
    membership[reputable] = 1.0
    return weighted_sum(omega * membership, uploads)


def quotas(c: Vector, n: Vector, reputable: list[int], dimension: int) -> list[int]:
    """Step 5: m_k = floor(c_k / max c * n_k / max n * D), and nothing for the expelled."""
    best = c.max()
    return [
        math.floor((c[k] / best) * (n[k] / n.max()) * dimension) if k in reputable and best > 0 else 0
        for k in range(len(n))
    ]


def first(g: Vector, m: int, order: Integers) -> Vector:
    """The entries of G that come first in an order, m of them; zero elsewhere."""
    place = np.argsort(order)  # of each entry in the order
    return np.where(place < m, g, 0.0)


def allocations(g: Vector, m: list[int], t: int, rules: Rules) -> list[Vector]:
    """Step 6: A_k = TopK(G, m_k), or the first m_k entries of one permutation that all clients share."""
    if rules.order is None:
        return [top(g, m_k) for m_k in m]
    order = rules.order(t)
    return [first(g, m_k, order) for m_k in m]


def returned(uploads: list[Vector], n: Vector, rules: Rules) -> list[Vector]:
    """Step 7, what is taken back: rho_k S_k."""
    rho = {"sum": np.ones_like(n), "mean": n / n.max()}[rules.aggregate]
    return [rho_k * s for rho_k, s in zip(rho, uploads, strict=True)]


def train(w: Vector, client: Client, t: int, lr: float) -> Vector:
    """Local step 1: the change; rounds are counted from 1 for the batches alone."""
    return sgd(w, client, client.batches(t + 1), lr) - w


def start(theta0: Vector, count: int, rules: Rules) -> Round:
    """Everybody reputable, everybody at theta0."""
    return {
        "uploads": [],
        "accuracy": np.full(count, np.nan),
        "reputation": first_reputation(count, rules),
        "reputable": list(range(count)),
        "aggregate": np.zeros_like(theta0),
        "global": theta0,
        "quota": [0] * count,
        "models": [theta0] * count,
    }


def uploaded(delta: Vector, rules: Rules) -> Vector:
    """Local step 4: the largest entries, clipped; entries that a clamp makes equal rank by size before it."""
    return np.where(top_share(delta, rules.upload) != 0, clipped(delta, rules), 0.0)


def serve(past: Round, deltas: list[Vector], n: Vector, t: int, rules: Rules) -> Round:
    """Local steps 2 to 4, then the server's 1 to 7, in their order."""
    models = [w + clipped(delta, rules) for w, delta in zip(past["models"], deltas, strict=True)]
    uploads = [uploaded(delta, rules) for delta in deltas]
    a = scores(past["global"], uploads, past["reputable"], rules)
    c = renewed(past["reputation"], a, past["reputable"], alpha_at(t, rules), rules)
    c, reputable = expelled(c, past["reputable"], rules)
    g = summed(uploads, n, reputable, rules)
    m = quotas(c, n, reputable, g.size)
    gains = np.subtract(allocations(g, m, t, rules), returned(uploads, n, rules))
    return {
        "uploads": uploads,
        "accuracy": a,
        "reputation": c,
        "reputable": reputable,
        "aggregate": g,
        "global": past["global"] + g,
        "quota": m,
        "models": [w + gains[k] if k in reputable else w for k, w in enumerate(models)],
    }


def run(theta0: Vector, clients: Sequence[Client], rounds: int, lr: float, **hyper: Any) -> list[Round]:
    """Everybody trains, the expelled too; then the server's turn. `hyper` are the fields of Rules."""
    rules, n, history = Rules(**hyper), sizes(clients), list[Round]()
    state = start(theta0, len(clients), rules)
    for t in range(rounds):
        pairs = zip(state["models"], clients, strict=True)
        deltas = [train(w, client, t, lr) for w, client in pairs]
        state = serve(state, deltas, n, t, rules)
        history.append(state)
    return history
