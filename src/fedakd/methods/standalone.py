"""Standalone: every client trains alone. The reference that collaborative fairness is measured against.

Confidence: official.

Deviations:
- The optimiser is made anew every round, as in every federated method, so that budgets are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedakd.method import Client, Method, Server
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class Standalone(Method):
    summary = "every client trains alone; the reference for gains and CF"
    citation = "baseline"

    def server_init(self, server: Server, params: Params) -> Tree:
        return {}

    def send(self, state: Tree, client: int) -> Tree:
        return {}

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        return state

    def client_init(self, client: Client, params: Params) -> Tree:
        return {"model": params}

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        return {"model": client.fit(state["model"], client.data)}, {}

    def models(self, state: Tree) -> dict[str, Params]:
        return {"personal": state["model"]}
