"""FedAvg: the mean of the clients' models, weighted by their rows.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas. Communication-Efficient Learning of Deep Networks from
Decentralized Data. AISTATS 2017.
Confidence: official.

Deviations:
- Running statistics of batch norm, which the paper does not have, are averaged like the parameters.
- A client keeps the model it trained last and shows it as the view `trained`: where all clients are judged on
  one common test set the global model cannot tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedakd import trees
from fedakd.method import Client, Method, Server
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class FedAvg(Method):
    weigh_by: Literal["size", "uniform"] = "size"

    summary = "one global model, the mean of the clients' models weighted by rows"
    citation = "McMahan et al., AISTATS 2017"

    def server_init(self, server: Server, params: Params) -> Tree:
        return {"model": params, "sizes": server.sizes}

    def send(self, state: Tree, client: int) -> Tree:
        return {"model": state["model"]}

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        trained = self.fitted(client, state["model"])
        return {"trained": trained}, {"model": trained, "n": float(client.n)}

    def fitted(self, client: Client, w_g: Params) -> Params:
        """The global model after the client's local training."""
        return client.fit(w_g, client.data)

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        weights = self.weights(state, updates)
        if not sum(weights) > 0:  # nobody has anything to say
            return state
        return {**state, "model": trees.mean((update["model"] for update in updates.values()), weights)}

    def weights(self, state: Tree, updates: Mapping[int, Tree]) -> list[float]:
        """How much each update counts, in the order of the updates."""
        if self.weigh_by == "uniform":
            return [1.0] * len(updates)
        return [float(state["sizes"][client]) for client in updates]

    def models(self, state: Tree) -> dict[str, Params]:
        return {"global": state["model"], "trained": state.get("trained", state["model"])}

    def contributions(self, state: Tree) -> Tensor | None:
        """The share of all rows is what FedAvg holds a client to contribute; its relatives say nothing."""
        sizes: Tensor = state["sizes"]
        return sizes / sizes.sum() if type(self) is FedAvg else None
