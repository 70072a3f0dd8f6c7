"""Softmax regression in double precision: one flat vector theta = [b, W row by row]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Batches = Sequence[Integers]


@dataclass(frozen=True)
class Client:
    """One client's training rows, and the row indices of every SGD step of a round (counted from 1)."""

    x: Matrix
    y: Integers
    batches: Callable[[int], Batches]


def split(theta: Vector, features: int) -> tuple[Vector, Matrix]:
    """The tensors b [classes] and W [classes, features] of a flat vector."""
    classes, rest = divmod(theta.size, features + 1)
    assert rest == 0, f"{theta.size} entries do not make b and W over {features} features"
    return theta[:classes], theta[classes:].reshape(classes, features)


def flatten(b: Vector, weight: Matrix) -> Vector:
    """The flat vector of the tensors b and W."""
    return np.concatenate([b, weight.ravel()])


def logits(theta: Vector, x: Matrix) -> Matrix:
    """z = x W' + b, one row per sample."""
    b, weight = split(theta, x.shape[1])
    scores: Matrix = x @ weight.T + b
    return scores


def log_softmax(z: Matrix) -> Matrix:
    """Row-wise z - log(sum(exp(z))), shifted by the row's maximum against overflow."""
    shifted = z - z.max(axis=1, keepdims=True)
    log_probabilities: Matrix = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_probabilities


def loss(theta: Vector, x: Matrix, y: Integers) -> float:
    """Mean cross-entropy."""
    return -float(np.mean(log_softmax(logits(theta, x))[np.arange(len(y)), y]))


def gradient(theta: Vector, x: Matrix, y: Integers) -> Vector:
    """Gradient of the mean cross-entropy: (softmax - onehot) / n, against 1 for b and against x for W."""
    residual = np.exp(log_softmax(logits(theta, x)))
    residual[np.arange(len(y)), y] -= 1.0
    residual /= len(y)
    return flatten(residual.sum(axis=0), residual.T @ x)


def accuracy(theta: Vector, x: Matrix, y: Integers) -> float:
    """Share of rows whose largest logit is the label's; ties go to the lowest class."""
    return float(np.mean(np.argmax(logits(theta, x), axis=1) == y))


def sgd(
    theta: Vector,
    client: Client,
    batches: Batches,
    lr: float,
    extra: Callable[[Vector], Vector] | None = None,
) -> Vector:
    """One plain SGD step per batch; `extra(theta)` is added to the minibatch gradient."""
    for rows in batches:
        step = gradient(theta, client.x[rows], client.y[rows])
        if extra is not None:
            step = step + extra(theta)
        theta = theta - lr * step
    return theta


def sizes(clients: Sequence[Client]) -> Vector:
    """n_k, as floats."""
    return np.array([len(client.y) for client in clients], dtype=np.float64)


def weighted_sum(weights: Vector, vectors: Sequence[Vector]) -> Vector:
    """sum_k weights_k * vectors_k."""
    total: Vector = sum(
        (weight * vector for weight, vector in zip(weights, vectors, strict=True)),
        start=np.zeros_like(vectors[0]),
    )
    return total
