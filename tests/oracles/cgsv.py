"""CGSV (specification 2.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np

from oracles.linear import Batches, Client, Vector, sgd, sizes, weighted_sum
from oracles.masks import top_share, top_share_by_layer

Mode = Literal["layer", "global"]


@dataclass(frozen=True)
class Rules:
    """What the server needs to know besides the uploads."""

    alpha: float
    beta: float
    mode: Mode
    features: int


Round = TypedDict(
    "Round",
    {
        "uploads": list[Vector],  # u_k
        "aggregate": Vector,  # u
        "global": Vector,  # w_g
        "cosine": Vector,  # phi
        "reputation": Vector,  # r
        "share": Vector,  # q
        "rewards": list[Vector],  # v_k
        "models": list[Vector],  # w_k
    },
)


def upload(model: Vector, client: Client, batches: Batches, lr: float, gamma: float) -> Vector:
    """u_k = gamma delta / (|delta| + 1e-7); the client's own parameters are left as they were."""
    delta = sgd(model, client, batches, lr) - model
    normalised: Vector = gamma * delta / (np.linalg.norm(delta) + 1e-7)
    return normalised


def cosine(a: Vector, b: Vector) -> float:
    """a.b / (|a| |b|), either norm held above 1e-10."""
    lengths = [max(float(np.linalg.norm(v)), 1e-10) for v in (a, b)]
    return float(a @ b) / (lengths[0] * lengths[1])


def renew(r: Vector, phi: Vector, u: Vector, alpha: float) -> Vector:
    """alpha r + (1 - alpha) phi, clamped below at 1e-3, then normalised; r itself when u = 0."""
    if not u.any():
        return r
    mixed = np.maximum(alpha * r + (1.0 - alpha) * phi, 1e-3)
    normalised: Vector = mixed / mixed.sum()
    return normalised


def shares(r: Vector, beta: float) -> Vector:
    """q_k = tanh(beta r_k) / max_j tanh(beta r_j); zero as long as every r is zero."""
    bent: Vector = np.tanh(beta * r)
    return bent / bent.max() if bent.max() > 0 else np.zeros_like(r)


def reward(u: Vector, q: float, mode: Mode, features: int) -> Vector:
    """v_k: the share q of the aggregate, largest entries first."""
    return {"layer": top_share_by_layer(u, q, features), "global": top_share(u, q)}[mode]


def serve(
    uploads: list[Vector], weights: Vector, r: Vector, server: Vector, models: list[Vector], rules: Rules
) -> Round:
    """The server's steps 2 to 6 and the clients' step 7."""
    u = weighted_sum(weights, uploads)
    phi = np.array([cosine(u_k, u) for u_k in uploads])
    r = renew(r, phi, u, rules.alpha)
    q = shares(r, rules.beta)
    rewards = [reward(u, float(q_k), rules.mode, rules.features) for q_k in q]
    return {
        "uploads": uploads,
        "aggregate": u,
        "global": server + u,
        "cosine": phi,
        "reputation": r,
        "share": q,
        "rewards": rewards,
        "models": [w + v for w, v in zip(models, rewards, strict=True)],
    }


def run(
    theta0: Vector,
    clients: Sequence[Client],
    rounds: int,
    lr: float,
    *,
    alpha: float,
    beta: float,
    gamma: float,
    mode: Mode = "layer",
) -> list[Round]:
    """Weights are p_k in the first round and the previous round's r_k afterwards."""
    rules = Rules(alpha, beta, mode, clients[0].x.shape[1])
    models, server, history = [theta0 for _ in clients], theta0, list[Round]()
    r, weights = np.zeros(len(clients)), sizes(clients) / sizes(clients).sum()
    for t in range(1, rounds + 1):
        pairs = zip(models, clients, strict=True)
        uploads = [upload(w, client, client.batches(t), lr, gamma) for w, client in pairs]
        history.append(serve(uploads, weights, r, server, models, rules))
        models, server = history[-1]["models"], history[-1]["global"]
        r = weights = history[-1]["reputation"]
    return history
