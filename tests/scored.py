"""CFFL's server without data: small vectors, and validation accuracies written down beforehand."""

from __future__ import annotations

import torch

import toys
from fedakd import trees
from fedakd.method import Server
from fedakd.methods.cffl import CFFL
from fedakd.trees import Params, Tree

LIKE: Params = {"a": torch.zeros(3, 2, dtype=torch.float64), "b": torch.zeros(4, dtype=torch.float64)}
PAPER = CFFL(**CFFL.presets["paper"])


class Scoring(Server):
    """A server whose accuracies are written down beforehand, told apart by the upload's last entry."""

    def __init__(self, scores):
        self.validation, self.known, self.seen = toys.rows(2, 0), scores, []

    def accuracy(self, params, data):
        self.seen.append(params)
        return self.known[round(params["b"][-1].item())]

    def update_bn(self, params, data):
        return params


def uploads(clients: int) -> dict[int, Tree]:
    """Uploads of a shape of their own; the last entry is the number of the client."""
    rng = torch.Generator().manual_seed(7)
    rows = torch.randn(clients, 10, generator=rng, dtype=torch.float64)
    rows[:, -1] = torch.arange(clients)
    packed = [trees.pack(trees.unvector(row, LIKE)) for row in rows]
    return {k: {"uploaded": part} for k, part in enumerate(packed)}


def start(method: CFFL, sizes, **known) -> Tree:
    n = torch.tensor(sizes, dtype=torch.float64)
    c = torch.zeros_like(n) if method.sharpen == "after" else torch.full_like(n, 1 / len(n))
    state = {"gradient": LIKE, "model": LIKE, "quota": 0 * n, "owed": {}, "sizes": n, "reputation": c}
    state |= {"buffers": {}, "draw": 0.0, "reputable": torch.ones_like(n), "round": 0.0}
    return state | {k: torch.tensor(v, dtype=torch.float64) if k != "round" else v for k, v in known.items()}


def after(method: CFFL, state: Tree, scores, present=None) -> Tree:
    """The state after a round in which the clients present score as given."""
    sent = uploads(len(scores))
    chosen = {k: sent[k] for k in (range(len(scores)) if present is None else present)}
    fresh = {**state, "model": LIKE}  # so that the last entry still tells clients apart
    return method.server_update(Scoring(scores), fresh, chosen)


def permutation(state: Tree, count: int) -> torch.Tensor:
    """The order in which the entries of G are given out at random, by the seed in the server's state."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(int(state["draw"])))
