"""Standalone: every client trains alone. The reference that collaborative fairness is measured against.

Confidence: official.

It has the epochs and the recipe of every federated method, with one optimiser for the whole run, as a client
that trains alone would have it.

Deviations:
- Up to version 3 of the results the optimiser was made anew every round, as federated methods do. With Adam
  that costs a client alone 2 to 3 points of accuracy on FashionMNIST under POW, about as much as methods gain
  there, so the state is kept now. restart=true is the earlier rule.
- sgd=true trains with plain SGD where the recipe has Adam, for comparison with SCAFFOLD and FedDC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedakd.method import Client, Method, Server
from fedakd.training import Recipe
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class Standalone(Method):
    restart: bool = False  # whether every round has a new optimiser
    sgd: bool = False  # at the rate of the recipe if that has SGD, else at 0.1

    summary = "every client trains alone; the reference for gains and CF"
    citation = "baseline"

    def recipe(self, usual: Recipe) -> Recipe:
        return usual.as_sgd() if self.sgd else usual

    def server_init(self, server: Server, params: Params) -> Tree:
        return {}

    def send(self, state: Tree, client: int) -> Tree:
        return {}

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        return state

    def client_init(self, client: Client, params: Params) -> Tree:
        return {"model": params, "moments": {}}

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        recipe = self.recipe(client.recipe)
        model, moments = client.fit_from(state["model"], state["moments"], client.data, recipe=recipe)
        return {"model": model, "moments": {} if self.restart else moments}, {}

    def models(self, state: Tree) -> dict[str, Params]:
        return {"personal": state["model"]}
