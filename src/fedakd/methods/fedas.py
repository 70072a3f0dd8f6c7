"""FedAS: own heads on a shared base, which each client aligns with its own past before it trains.

Yang, Huang, Ye. FedAS: Bridging Inconsistency in Personalized Federated Learning. CVPR 2024.
Confidence: official.

One round at client k, which holds its whole model and receives the global one:
  1. prototypes: the mean feature of each local class under its own model, in evaluation mode;
  2. alignment: a copy of the global base minimises mean((f(x) - prototype)^2), summed over a batch's classes;
  3. training: the aligned base and its own head minimise CE together;
  4. F_k = sum over batches of |gradient of the mean loss|^2, in evaluation mode; the model and F_k are sent.
The server averages the models by F_k. The base is all parameters but those of .head.

Deviations:
- The authors' server lends its own model to the alignment, so that one client's reaches the next: we copy it.
- Their batches are in order and leave out the last rows, and clients that sit out compute an F_k that nobody
  reads: our batches are those of every method, and who sits out does nothing.
- Running statistics stay with the client, and alignment, in evaluation mode, leaves them as they are. So they
  lag behind: a new base meets the statistics of the old one, and a small client takes three to six steps a
  round at momentum 0.1. The authors' net has no batch norm. Before a model is judged its statistics are
  therefore estimated anew on the client's training rows, by one rule for all methods, outside of the method.
  Corrected: models were judged with the lagging ones (POW on FashionMNIST, one draw: a gain of -5.8 instead
  of -0.1 points).
- The statistics of the global model, with the authors the first client's, are averaged by F_k and serve its
  evaluation only. For that the whole global model is sent; a client itself needs its base alone.
- A client whose F_k is not finite has no weight in its round; if all F_k are 0, rows are the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from fedakd import trees
from fedakd.errors import FedakdError, PlanError
from fedakd.method import Client
from fedakd.methods.fedavg import FedAvg
from fedakd.training import Batch
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class FedAS(FedAvg):
    weigh_by: Literal["size", "uniform", "fisher"] = "fisher"  # type: ignore[assignment]
    align: bool = True
    align_lr: float = 0.01
    align_epochs: int = 1
    align_batch: int = 16

    summary = "own heads; the shared base is aligned with each client's past, averaged by Fisher trace"
    citation = "Yang et al., CVPR 2024"

    def __post_init__(self) -> None:
        if not (self.align_lr >= 0 and min(self.align_epochs, self.align_batch) >= 1):
            raise PlanError(f"fedas: align_lr must be 0 or above, epochs and batch at least 1, got {self}")

    def client_init(self, client: Client, params: Params) -> Tree:
        if not (hasattr(client.module, "body") and hasattr(client.module, "head")):
            raise FedakdError(f"FedAS needs a model with .body and .head, got {type(client.module).__name__}")
        return {"personal": params}

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        own, base = state["personal"], [name for name in client.trainable if not name.startswith("head.")]
        start = {**own, **trees.pick(state["model"], base)}
        if self.align and any(name.startswith("body.") for name in base):
            start = self.aligned(client, start, own)
        trained = client.fit(start, client.data)
        update = {"model": trained, "fisher": fisher(client, trained), "n": float(client.n)}
        return {"personal": trained}, update

    def aligned(self, client: Client, start: Params, own: Params) -> Params:
        """The start, its body moved towards what the client's own model makes of its classes."""
        prototypes, which = per_class(client, own)

        def loss(module: nn.Module, batch: Batch) -> Tensor:
            rows = which[batch.rows]
            features: Tensor = module.eval().get_submodule("body")(batch.x).flatten(1)
            gaps = (features - prototypes[rows]).square().mean(1)
            return (gaps / torch.bincount(rows)[rows]).sum()  # of each class the mean

        recipe = replace(client.recipe.as_sgd(self.align_lr), epochs=self.align_epochs, weight_decay=0.0)
        recipe = replace(recipe, batch_size=self.align_batch)
        only = {name for name in client.trainable if name.startswith("body.")}.__contains__
        return client.fit(start, client.data, loss=loss, recipe=recipe, only=only, purpose="align")

    def weights(self, state: Tree, updates: Mapping[int, Tree]) -> list[float]:
        sizes = super().weights(state, updates)
        if self.weigh_by != "fisher":
            return sizes
        traces = [update["fisher"] for update in updates.values()]
        total = sum(trace for trace in traces if math.isfinite(trace))
        shares = [trace / total for trace in traces] if total > 0 else sizes
        return [share if math.isfinite(trace) else 0.0 for share, trace in zip(shares, traces, strict=True)]

    def models(self, state: Tree) -> dict[str, Params]:
        return {"personal": state["personal"], "global": state["model"]}


def per_class(client: Client, params: Params) -> tuple[Tensor, Tensor]:
    """The mean feature of each class, (classes, width), and which of them each row belongs to."""
    classes, which = torch.unique(client.data.y, return_inverse=True)
    features = client.features(params, client.data).flatten(1)
    return torch.stack([features[which == c].mean(0) for c in range(len(classes))]), which


def fisher(client: Client, params: Params) -> float:
    """The trace: a fit that stands still and listens to its gradients."""
    squares: list[float] = []

    def listen(_: str, gradient: Tensor) -> Tensor:
        squares.append(float(gradient.double().square().sum()))
        return torch.zeros_like(gradient)  # what is not finite would move even at a rate of 0

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        return client.loss(module.eval(), batch)

    recipe = replace(client.recipe.as_sgd(0.0), epochs=1, weight_decay=0.0)
    client.fit(params, client.data, loss=loss, grad=listen, recipe=recipe, purpose="fisher")
    return sum(squares)
