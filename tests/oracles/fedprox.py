"""FedProx (specification 2.3)."""

from __future__ import annotations

from collections.abc import Sequence

from oracles.fedavg import Round, WeighBy, weights
from oracles.linear import Batches, Client, Vector, sgd, weighted_sum


def train(model: Vector, client: Client, batches: Batches, lr: float, mu: float) -> Vector:
    """theta <- theta - lr (grad CE + mu (theta - w_g)), with w_g frozen at its broadcast value."""
    return sgd(model, client, batches, lr, extra=lambda theta: mu * (theta - model))


def run(
    theta0: Vector,
    clients: Sequence[Client],
    rounds: int,
    lr: float,
    *,
    mu: float,
    weigh_by: WeighBy = "size",
) -> list[Round]:
    """FedAvg whose clients minimise CE + mu/2 |theta - w_g|^2."""
    p, model, history = weights(clients, weigh_by), theta0, list[Round]()
    for t in range(1, rounds + 1):
        trained = [train(model, client, client.batches(t), lr, mu) for client in clients]
        model = weighted_sum(p, trained)
        history.append({"model": model, "locals": trained})
    return history
