"""FedAvg (specification 2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

import numpy as np

from oracles.linear import Client, Vector, sgd, sizes, weighted_sum

WeighBy = Literal["size", "uniform"]


class Round(TypedDict):
    """The server's model after the round, and the clients' models before the aggregation."""

    model: Vector
    locals: list[Vector]


def weights(clients: Sequence[Client], weigh_by: WeighBy) -> Vector:
    """p_k = n_k / N, or 1 / K."""
    shares = {"size": sizes(clients), "uniform": np.ones(len(clients))}[weigh_by]
    normalised: Vector = shares / shares.sum()
    return normalised


def run(
    theta0: Vector, clients: Sequence[Client], rounds: int, lr: float, *, weigh_by: WeighBy = "size"
) -> list[Round]:
    """w_g <- sum_k p_k LocalTrain(w_g, D_k)."""
    p, model, history = weights(clients, weigh_by), theta0, list[Round]()
    for t in range(1, rounds + 1):
        trained = [sgd(model, client, client.batches(t), lr) for client in clients]
        model = weighted_sum(p, trained)
        history.append({"model": model, "locals": trained})
    return history
