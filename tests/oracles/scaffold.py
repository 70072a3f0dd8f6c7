"""SCAFFOLD with option II and true step counts (specification 2.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from oracles.linear import Batches, Client, Vector, sgd


class Round(TypedDict):
    """The server's model and control variate, the clients' control variates and trained models."""

    model: Vector
    c: Vector
    c_k: list[Vector]
    locals: list[Vector]


def train(
    model: Vector, client: Client, batches: Batches, lr: float, c: Vector, c_k: Vector
) -> tuple[Vector, Vector]:
    """The trained y and the new c_k <- c_k - c + (w_g - y) / (S_k lr), S_k steps having been taken."""
    y = sgd(model, client, batches, lr, extra=lambda _: c - c_k)
    return y, c_k - c + (model - y) / (len(batches) * lr)


def run(
    theta0: Vector, clients: Sequence[Client], rounds: int, lr: float, *, server_lr: float = 1.0
) -> list[Round]:
    """w_g <- w_g + eta_g mean_k(y_k - w_g); c <- c + mean_k(c_k' - c_k)."""
    model, c, history = theta0, np.zeros_like(theta0), list[Round]()
    controls = [np.zeros_like(theta0) for _ in clients]
    for t in range(1, rounds + 1):
        trained = [
            train(model, client, client.batches(t), lr, c, c_k)
            for client, c_k in zip(clients, controls, strict=True)
        ]
        ys, renewed = [y for y, _ in trained], [c_k for _, c_k in trained]
        model = model + server_lr * np.mean([y - model for y in ys], axis=0)
        c = c + np.mean([new - old for new, old in zip(renewed, controls, strict=True)], axis=0)
        controls = renewed
        history.append({"model": model, "c": c, "c_k": controls, "locals": ys})
    return history
