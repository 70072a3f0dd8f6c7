"""FedSAC: the better a client is alone, the larger the part of the global model it is given.

Wang et al. FedSAC: Dynamic Submodel Allocation for Collaborative Fairness in Federated Learning. KDD 2024.
Confidence: reconstructed (the authors published no code; formulas from a digest and others' implementation).

C_k is the accuracy of client k's standalone model, r_k = 100 exp(beta C_k) / max_j exp(beta C_j). A unit
(filter, hidden neuron) is as important as the loss is higher without it; importances are scaled to 100 in
all. Client k gets the shortest prefix of the units, least important first, whose importances reach r_k. It
trains with the others silenced; the server takes the mean of every entry over the clients that hold it.

Deviations:
- The group's later code has test accuracies for C_k; ours come from the server's validation rows and a model
  that the client trains for alone_epochs in its first round. Until then the client gets the full model, and
  is reported as an average contributor. beta is that of others' code.
- The KDD 2025 code takes (descending) a count of the most important units, once, and scores the global model.
- Importance is measured on `probe` validation rows after round `first` (an untrained model's says nothing),
  then every `refresh` rounds; in the KDD 2025 paper and code once, in round 15 or T / 2 = 10.
- Every layer keeps its first unit, or the net would be cut in two; without hidden units all get all; a body
  whose units cannot be taken out (residual sums) is refused. A unit's batch norm is allocated with it.
- Submodels travel as whole tensors, and weight decay reaches what leaves silenced units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedakd import activations
from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.method import Client, Method, Server
from fedakd.methods.reward import filled
from fedakd.trees import Params, Tree

UNKNOWN = -1.0  # below any accuracy


@dataclass(frozen=True)
class FedSAC(Method):
    beta: float = 3.0
    first: int = 1
    refresh: int = 10  # 0: never again
    order: Literal["ascending", "descending"] = "ascending"
    alone_epochs: int = 5
    probe: int = 1000

    summary = "clients get the part of the global model that their standalone accuracy earns them"
    citation = "Wang et al., KDD 2024"
    confidence = "reconstructed"
    needs_validation = True
    presets: ClassVar = {"paper": {"beta": 2.0, "first": 15, "refresh": 0}} | {
        "released": {"beta": 2.0, "first": 10, "refresh": 0, "order": "descending"}
    }

    def __post_init__(self) -> None:
        for name, least in {"beta": 0, "first": 1, "refresh": 0, "alone_epochs": 1, "probe": 1}.items():
            if not least <= (value := getattr(self, name)) < math.inf:
                raise PlanError(f"fedsac: {name} must be {least} or above and finite, got {value}")

    def server_init(self, server: Server, params: Params) -> Tree:
        activations.check(server, params, server.held_back)
        units = sum(layer.units for layer in activations.hidden(server.module))
        blank = {"worth": torch.full_like(server.sizes, UNKNOWN), "importance": torch.zeros(units).double()}
        return {"model": params, "owners": activations.owners(server.module), **blank, "rounds": 0.0}

    def send(self, state: Tree, client: int) -> Tree:
        mask = self.mask(state, client)
        return {"model": activations.masked(state["model"], state["owners"], mask), "mask": mask}

    def mask(self, state: Tree, client: int) -> Tensor:
        """Which units the client gets, (units,); all as long as importances are 0, which reach nothing."""
        importance, worth = state["importance"], state["worth"]
        reputation = 100 * math.exp(self.beta * float(worth[client] - worth.max()))
        if worth[client] == UNKNOWN or reputation >= 100:
            return torch.ones(len(importance))
        return activations.prefix(importance, reputation, state["owners"], self.order == "descending")

    def client_init(self, client: Client, params: Params) -> Tree:
        return {"start": params}

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        module, mask = client.module, state["mask"]
        with activations.changed(module, activations.silencing(module, mask)):
            trained = client.fit(state["model"], client.data)
        trained = activations.masked(trained, activations.owners(module), mask)
        update = {"model": trained, "mask": mask, "n": float(client.n)}
        if "start" in state:
            recipe = replace(client.recipe, epochs=self.alone_epochs)
            update["alone"] = client.fit(state["start"], client.data, recipe=recipe, purpose="alone")
        return {}, update

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        if not updates:
            return state
        held = ((update["model"], update["mask"]) for update in updates.values())
        model = activations.mean_of_holders(held, state["owners"], state["model"])
        worth, since = state["worth"].clone(), state["rounds"] + 1 - self.first
        for k in [k for k in updates if worth[k] == UNKNOWN]:  # their first updates
            worth[k] = server.accuracy(updates[k]["alone"], server.held_back)
        after = {**state, "model": model, "worth": worth, "rounds": state["rounds"] + 1}
        if since >= 0 and since % (self.refresh or math.inf) == 0:
            after["importance"] = self.importance(server, model, server.held_back)
        return after

    def importance(self, server: Server, model: Params, rows: Examples) -> Tensor:
        probe = torch.randperm(len(rows), generator=server.generator("probe"))[: self.probe]
        return 100 * activations.importance(server, model, rows[probe])

    def models(self, state: Tree) -> dict[str, Params]:
        return {"personal": state["model"]}

    def contributions(self, state: Tree) -> Tensor | None:
        known = (state["worth"] != UNKNOWN).nonzero().flatten().tolist()  # the others are held average
        return filled(state["worth"], known) if known else None
