"""CGSV: rewards are sparse copies of the common update, denser for clients whose updates point along it.

Xu, Lyu, Ma, Miao, Foo, Low. Gradient Driven Rewards to Guarantee Fairness in Collaborative Machine Learning.
NeurIPS 2021.
Confidence: official.

One round; client k owns w_k, the server holds reputations r, 0 at first:
  1. the client trains a copy of w_k and sends u_k = gamma delta / |delta|; w_k stays as it was;
  2. u = the mean of the u_k, weighted by rows in the first round and by r afterwards;
  3. r_k = alpha r_k + (1 - alpha) cos(u_k, u), at least 0.001, all normalised to sum 1;
  4. q_k = tanh(beta r_k) / max_j tanh(beta r_j);
  5. w_k = w_k + the largest q_k of u's entries, in each tensor by itself or in all together.

Deviations:
- The authors restore the whole model in step 1. We restore the parameters; running statistics of batch norm,
  which their nets do not have, would otherwise never change. u_k and the cosine are about parameters alone.
  The reward changes the parameters after these statistics were gathered; before a model is judged they are
  estimated anew on the client's training rows, as for every method.
- The authors keep each client's optimiser and learning-rate schedule; ours are made anew, as in every method.
- The authors' gamma is 0.5 for MNIST, 0.15 for CIFAR10 and 1 for text; ours is 0.5.
- The authors' masks keep more where magnitudes tie, and never the smallest of a tensor; ours are exact.
- The server's own model, which the authors monitor, is left out: no client sees it.
- All clients take part with the authors. Here u is of those present; an absent client keeps r_k up to step
  3's floor and common normalisation (who misses the first round is held average), gets nothing of this u, and
  is still owed its last reward.
- beta is swept by the authors; the KDD 2025 table's second one, 2.0, has no counterpart and no effect.
- preset released: that code's r starts at 1/K without floor, its clients restart from a global model, get the
  update twice, and its cosines include batch norm's counters. We copy none of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fedakd import trees
from fedakd.errors import PlanError
from fedakd.method import Client, Server
from fedakd.methods.reward import Rewarding, filled, relative, rescaled, settled
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class CGSV(Rewarding):
    alpha: float = 0.95
    beta: float = 1.0
    gamma: float = 0.5
    layers: Literal["each", "all"] = "each"
    clamp: Literal["after", "before"] = "after"
    weigh_by: Literal["reputation", "uniform"] = "reputation"
    normalise: bool = True

    summary = "each client receives as much of the common update as its own update agrees with it"
    citation = "Xu et al., NeurIPS 2021"
    presets: ClassVar = {
        "paper": {"alpha": 0.9},
        "released": {
            **{"alpha": 0.9, "layers": "all", "clamp": "before"},
            **{"weigh_by": "uniform", "normalise": False},
        },
    }

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise PlanError(f"cgsv: alpha must be between 0 and 1, got {self.alpha}")
        if not (self.beta > 0 and self.gamma > 0):
            raise PlanError(f"cgsv: beta and gamma must be above 0, got {self.beta} and {self.gamma}")

    def reward(self, state: Tree, client: int) -> Tree:
        largest = trees.top_each if self.layers == "each" else trees.top
        return {"reward": trees.pack(largest(state["gradient"], float(state["quota"][client])))}

    def receive(self, kept: Tree, message: Tree) -> Tree:
        w_k: Params = kept["model"]
        return {**kept, "model": trees.add(w_k, trees.unpack(message["reward"], like=w_k))}

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        delta, buffers = self.fitted(client, state)
        u_k = rescaled(delta, self.gamma) if self.normalise else delta
        return {"model": state["model"], "buffers": buffers}, {"update": u_k}

    def learned(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        u = trees.mean((update["update"] for update in updates.values()), self.weights(state, updates))
        r = self.reputations(state["reputation"], u, updates)
        return {"gradient": u, "reputation": r, "quota": relative(r, self.beta)}

    def weights(self, state: Tree, updates: Mapping[int, Tree]) -> list[float]:
        """How much each update counts, in the order of the updates."""
        if self.weigh_by == "uniform":
            return [1.0] * len(updates)
        first = not bool(state["reputation"].any())
        weights: Tensor = state["sizes"] if first else state["reputation"]
        return [float(weights[client]) for client in updates]

    def reputations(self, before: Tensor, u: Params, updates: Mapping[int, Tree]) -> Tensor:
        if trees.norm(u) == 0:  # an update that points nowhere says nothing about anybody
            return before
        r = before.clone()
        for client, update in updates.items():
            phi = trees.cosine(update["update"], u)
            r[client] = self.alpha * r[client] + (1 - self.alpha) * self.counted(phi)
        return settled(r if before.any() else filled(r, list(updates)))

    def counted(self, phi: float) -> float:
        return max(phi, 0.0) if self.clamp == "before" else phi
