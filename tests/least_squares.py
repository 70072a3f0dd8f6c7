"""Federations of least squares: optima, and the points where local steps come to rest, in closed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, islice

import numpy as np
import torch
from torch import Tensor, nn

import toys
from fedakd.engine.base import Rows, Spec
from fedakd.engine.serial import Serial
from fedakd.examples import Examples
from fedakd.method import Method
from fedakd.rounds import Messages, begin, participants
from fedakd.training import Recipe, Task
from fedakd.trees import Params, Tree

FEDERATIONS = [(9, 4), toys.TEN]
ONE = Recipe(epochs=1, batch_size=100, lr=0.5)  # one full-batch step a round
SEVERAL = Recipe(epochs=3, batch_size=100, lr=0.25)


def affine(outputs: int = 1) -> nn.Module:
    return nn.Linear(2, outputs).double()


def half_squared_error(z: Tensor, y: Tensor) -> Tensor:
    return (z - y).square().sum(1).mean() / 2


def points(n: int, k: int, outputs: int = 1) -> Examples:
    """Rows of client k: a design matrix, lines and noise of its own, well enough conditioned to be quick."""
    rng = np.random.default_rng(k)
    x = rng.normal(size=(n, 2))
    axes = np.linalg.qr(x - x.mean(0))[0] * np.sqrt(n)
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    x = axes * rng.uniform(0.6, 1.5, size=2) @ turn + rng.normal(scale=0.3, size=2)
    lines = np.array([[1.0], [-2.0]]) + rng.normal(scale=3.0, size=(2, outputs))
    y = x @ lines + rng.normal(size=outputs) + rng.normal(scale=0.3, size=(n, outputs))
    return Examples(torch.tensor(x), torch.tensor(y))


def federation(method: Method, sizes: Sequence[int], recipe: Recipe = SEVERAL, outputs: int = 1) -> Spec:
    clients = tuple(Rows(k, points(n, k, outputs), points(3, 50 + k, outputs)) for k, n in enumerate(sizes))
    return Spec(method, Task(partial(affine, outputs), half_squared_error), recipe, 0, clients)


def flat(params: Params) -> np.ndarray:
    """Weights and intercept, (3, outputs)."""
    return np.c_[params["weight"].numpy(), params["bias"].numpy()].T


def course(spec: Spec, participation: float = 1.0) -> Iterator[tuple[Tree, dict[int, Tree]]]:
    """The server's state and what the clients keep, round by round; nobody is judged, to be quick."""
    method, engine, server = spec.method, Serial(spec), toys.server(spec)
    state = begin(method, engine, server, seed=0).state
    for number in count(1):
        chosen = participants(len(spec.clients), participation, 0, number)
        updates, reports = engine.train(number, Messages(method, state, chosen))
        assert not any(report.failure for report in reports.values())
        state = method.server_update(server, state, updates)
        yield state, {k: site.kept for k, site in engine.sites.items()}


def settled(spec: Spec, participation: float = 1.0, also: str = "") -> tuple[Tree, dict[int, Tree]]:
    """State and kept once the model, and clients' models of this name, stand still, or after 200."""
    still, before = 0, np.zeros((3, 1))
    for last in islice(course(spec, participation), 200):
        models = [last[0]["model"], *(kept[also] for kept in last[1].values() if also)]
        w = np.hstack([flat(model) for model in models])
        still, before = (still + 1 if np.abs(w - before).max() < 1e-10 else 0), w
        if still == 3:
            break
    return last


def end(spec: Spec, participation: float = 1.0) -> np.ndarray:
    return flat(settled(spec, participation)[0]["model"])


def quadratics(spec: Spec) -> list[tuple[np.ndarray, np.ndarray]]:
    """(H_k, b_k) of F_k(w) = w H_k w / 2 - b_k w + const; weight decay is part of it."""
    found = []
    for one in spec.clients:
        design = np.c_[one.train.x.numpy(), np.ones(len(one.train))]  # type: ignore[union-attr]
        h = design.T @ design / len(design) + spec.recipe.weight_decay * np.eye(3)
        found.append((h, design.T @ one.train.y.numpy() / len(design)))
    return found


def shares(spec: Spec, by: str) -> np.ndarray:
    sizes = np.array([len(one.train) if by == "size" else 1.0 for one in spec.clients])
    return sizes / sizes.sum()


def optimum(spec: Spec, by: str) -> np.ndarray:
    """Where sum_k q_k F_k is smallest: the weighted normal equations."""
    q = shares(spec, by)
    h, b = (np.tensordot(q, np.array(parts), 1) for parts in zip(*quadratics(spec), strict=True))
    return np.linalg.solve(h, b)


def resting_point(spec: Spec, by: str, pull: Sequence[float] | float = 0.0) -> np.ndarray:
    """Where the mean of the clients' models after their steps is the model they started from.

    With a pull towards the start, S steps lead from w to A w + d: both are iterated here.
    """
    q, pulls, eye = shares(spec, by), np.broadcast_to(pull, len(spec.clients)), np.eye(3)
    moved, offset = np.zeros((3, 3)), np.zeros((3, 1))
    for share, alpha, (h, b) in zip(q, pulls, quadratics(spec), strict=True):
        a, d = eye, np.zeros_like(b)
        for _ in range(spec.recipe.epochs):
            a = a - spec.recipe.lr * (h @ a + alpha * (a - eye))
            d = d - spec.recipe.lr * (h @ d - b + alpha * d)
        moved, offset = moved + share * a, offset + share * d
    return np.linalg.solve(eye - moved, offset)


def close(a: np.ndarray, b: np.ndarray, by: float = 1e-8) -> bool:
    return bool(np.abs(a - b).max() < by)


def far(a: np.ndarray, b: np.ndarray, by: float = 1e-2) -> bool:
    return bool(np.abs(a - b).max() > by)
