"""FedMPR: FedAvg of models made robust to averaging by magnitude pruning, dropout and noise.

Goksu, Pugeault. Robust Federated Learning in the Face of Covariate Shift: A Magnitude Pruning with Hybrid
Regularization Framework for Enhanced Model Aggregation. arXiv 2412.15010, 2024.
Confidence: reconstructed (no official code; what we could read names the ingredients, not the rates).

A client trains with dropout before the head and Gaussian noise on every hidden layer's output, then sets the
`prune` share of its entries that are smallest in magnitude to zero, and sends that. The server averages as
FedAvg does. A pruned entry may grow again in the next round.

Deviations:
- All rates are unknown but `prune`, which is the KDD 2025 paper's; dropout and noise are our proposal.
- Exactly floor(prune D) entries are pruned where a quantile as threshold would spare ties.
- Weights alone are pruned (tensors of two or more dimensions): batch norm's scale at 0 would end a channel.
  The code released with the KDD 2025 paper prunes everything (scope="all"), and its only regularisation is
  weight decay.
- A model without a `.body` is trained without dropout and noise: where its layers end is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional as F

from fedakd import activations, trees
from fedakd.activations import Change
from fedakd.errors import PlanError
from fedakd.method import Client
from fedakd.methods.fedavg import FedAvg
from fedakd.training import Recipe
from fedakd.trees import Params


@dataclass(frozen=True)
class FedMPR(FedAvg):
    prune: float = 0.1
    dropout: float = 0.2
    noise: float = 0.05
    decay: float = 0.0  # weight decay; 0: the recipe's
    scope: Literal["weights", "all"] = "weights"

    summary = "FedAvg of models trained with dropout and noise and pruned by magnitude"
    citation = "Goksu and Pugeault, arXiv 2024"
    confidence = "reconstructed"
    presets: ClassVar = {
        "released": {"dropout": 0.0, "noise": 0.0, "decay": 1e-4, "scope": "all", "weigh_by": "uniform"}
    }

    def __post_init__(self) -> None:
        for name in ("prune", "dropout"):
            if not 0 <= (value := getattr(self, name)) < 1:
                raise PlanError(f"fedmpr: {name} must be at least 0 and below 1, got {value}")
        for name in ("noise", "decay"):
            if not (value := getattr(self, name)) >= 0:
                raise PlanError(f"fedmpr: {name} must be 0 or above, got {value}")

    def recipe(self, usual: Recipe) -> Recipe:
        return replace(usual, weight_decay=self.decay) if self.decay else usual

    def fitted(self, client: Client, w_g: Params) -> Params:
        with activations.changed(client.module, self.changes(client.module)):
            trained = client.fit(w_g, client.data, recipe=self.recipe(client.recipe))
        return {**trained, **self.pruned(client.parameters(trained))}

    def changes(self, module: nn.Module) -> dict[str, Change]:
        """What happens to activations in training, by submodule."""
        found: dict[str, Change] = {}
        if self.noise:
            found |= {layer.out: noisy(self.noise) for layer in activations.hidden(module)}
        if self.dropout and hasattr(module, "body"):
            found["body"] = dropping(self.dropout, found.get("body"))
        return found

    def pruned(self, parameters: Params) -> Params:
        """The entries in scope, the smallest of them zero."""
        chosen = {n: part for n, part in parameters.items() if self.scope == "all" or part.dim() >= 2}
        total = sum(part.numel() for part in chosen.values())
        # the small term keeps exact shares exact: 0.29 * 100 is 28.999999999999996
        return trees.largest(chosen, total - int(self.prune * total + 1e-9))


def dropping(rate: float, before: Change | None) -> Change:
    """Dropout, after what happens there already: a body of one step is a hidden layer too."""
    return lambda output: F.dropout(before(output) if before else output, rate)


def noisy(scale: float) -> Change:
    """Gaussian noise from torch's own stream, which a fit seeds."""
    return lambda output: output + scale * torch.randn_like(output)
