"""Converged: every client trains alone for as long as that helps. The second reference for gains.

Confidence: official.

Standalone has the epochs of the federated methods; Converged has as many as a client alone would really take.
Everything happens in a client's first round:
  1. it holds out a share of its own training rows, chosen at random;
  2. it trains on the others, epoch by epoch with one optimiser, until `patience` epochs in a row have not
     lowered the mean loss on the rows held out, or for `limit` epochs; e is the epoch with the lowest loss;
  3. it trains again from the initial parameters, on all its rows and for e epochs, with one optimiser.
Later rounds change nothing and compute no gradients. An epoch is one pass over the rows, whatever the recipe
says of epochs in a round.

Deviations:
- There is no source: this is early stopping as anybody would do it, without test or validation rows.
- e is at least 1, also where no epoch is better than none.
- At least one row is held out and at least one is trained on. A client with a single row cannot hold it out,
  and trains for `patience` epochs.
- `limited` is 1 where the limit ended step 2, so that more epochs might have helped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.fitting import early_stopped
from fedakd.method import Client, Method, Server
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class Converged(Method):
    held_out: float = 0.15  # share of a client's own rows
    patience: int = 10  # epochs without a lower loss that end the search
    limit: int = 200  # epochs

    summary = "every client trains alone until rows it holds out gain nothing more; the second reference"
    citation = "baseline"

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise PlanError(f"converged: held_out must be above 0 and below 1, got {self.held_out}")
        if min(self.patience, self.limit) < 1:
            raise PlanError(
                f"converged: patience and limit must be 1 or above, got {self.patience} and {self.limit}"
            )

    def server_init(self, server: Server, params: Params) -> Tree:
        nothing = torch.zeros_like(server.sizes)  # 0 epochs: has not trained yet
        return {"epochs": nothing, "limited": nothing.clone()}

    def send(self, state: Tree, client: int) -> Tree:
        return {}

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        after = {name: state[name].clone() for name in ("epochs", "limited")}
        for client, update in updates.items():
            for name, values in after.items():
                values[client] = update[name]
        return after

    def client_init(self, client: Client, params: Params) -> Tree:
        return {"model": params, "epochs": 0.0, "limited": 0.0}

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        kept = state if state["epochs"] else self.trained(client, state["model"])
        return kept, {"epochs": kept["epochs"], "limited": kept["limited"]}

    def trained(self, client: Client, start: Params) -> Tree:
        """The model after the number of epochs that held-out rows call for."""
        epochs, limited = self.searched(client, start) if client.n > 1 else (self.patience, False)
        model = client.fit(start, client.data, recipe=replace(client.recipe, epochs=epochs))
        return {"model": model, "epochs": float(epochs), "limited": float(limited)}

    def searched(self, client: Client, start: Params) -> tuple[int, bool]:
        """The epoch with the lowest loss on the rows held out, and whether the limit ended the search."""
        rest, held = self.parted(client)
        course = early_stopped(
            client,
            start,
            rest,
            lambda params: client.risk(params, held),
            epochs=self.limit,
            patience=self.patience,
            keep_moments=True,
        )
        best, last = course.best_epoch.number, course.history[-1].number
        return max(best, 1), last - best < self.patience

    def parted(self, client: Client) -> tuple[Examples, Examples]:
        """The client's rows in two parts, the second held out; neither is empty."""
        count = min(max(round(self.held_out * client.n), 1), client.n - 1)
        order = torch.randperm(client.n, generator=client.generator("held out"))
        return client.data[order[count:]], client.data[order[:count]]

    def remarks(self, state: Tree) -> list[str]:
        limited = state["limited"].nonzero().flatten().tolist()
        clients = ", ".join(map(str, limited))
        still = (
            f"had not converged after {self.limit} epochs: clients {clients}; a larger limit may help them"
        )
        return [still] if limited else []

    def models(self, state: Tree) -> dict[str, Params]:
        return {"personal": state["model"]}
