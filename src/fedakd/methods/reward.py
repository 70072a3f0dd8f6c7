"""What methods have in common in which clients own their models and the server rewards them.

CFFL and CGSV are such methods; FedAVE shares their arithmetic.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from fedakd import trees
from fedakd.method import Client, Method, Server
from fedakd.trees import Params, Tree

LEAST = 1e-3  # CGSV's and FedAVE's floor for reputations


class Rewarding(Method):
    """A client's model changes when a reward arrives; parameters and running statistics are kept apart."""

    def server_init(self, server: Server, params: Params) -> Tree:
        sizes = server.sizes
        nothing = trees.zeros(server.parameters(params))
        blank = {"gradient": nothing, "quota": torch.zeros_like(sizes), "owed": {}}
        return {**blank, "sizes": sizes, "reputation": torch.zeros_like(sizes)}

    def send(self, state: Tree, client: int) -> Tree:
        owed: Tree | None = state["owed"].get(str(client))
        return self.reward(state, client) if owed is None else owed

    @abstractmethod
    def reward(self, state: Tree, client: int) -> Tree:
        """The message for a client that took part in the last round."""

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        if not updates:
            return state
        return {**state, **self.learned(server, state, updates), "owed": self.owed(state, updates)}

    @abstractmethod
    def learned(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        """What a round changes in the server's state."""

    def owed(self, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        """The messages of clients that missed this round: they have not acted on them yet, and still will."""
        absent = (k for k in range(len(state["sizes"])) if k not in updates)
        return {str(k): self.send(state, k) for k in absent}

    def client_init(self, client: Client, params: Params) -> Tree:
        return {"model": client.parameters(params), "buffers": client.buffers(params)}

    def fitted(self, client: Client, state: Tree) -> tuple[Params, Params]:
        """What local training adds to the client's parameters, and its running statistics afterwards."""
        trained = client.fit({**state["model"], **state["buffers"]}, client.data)
        return trees.sub(client.parameters(trained), state["model"]), client.buffers(trained)

    def models(self, state: Tree) -> dict[str, Params]:
        return {"personal": {**state["model"], **state["buffers"]}}

    def contributions(self, state: Tree) -> Tensor | None:
        """The reputations."""
        reputation: Tensor = state["reputation"]
        return reputation


def rescaled(delta: Params, length: float) -> Params:
    """The update with this Euclidean norm instead of its own; nothing stays nothing."""
    return trees.scale(delta, length / (trees.norm(delta) + 1e-7))


def filled(reputation: Tensor, present: list[int]) -> Tensor:
    """With the mean of those present for all others: at 0 they would be the last for long."""
    known = torch.zeros(len(reputation), dtype=torch.bool)
    known[present] = True
    return torch.where(known, reputation, reputation[known].mean())


def settled(reputation: Tensor) -> Tensor:
    """Reputations that are positive and sum to 1."""
    floored = reputation.clamp_min(LEAST)
    return floored / floored.sum()


def relative(reputation: Tensor, beta: float) -> Tensor:
    """The share of the common update that each reputation earns, 1 for the highest; a higher beta evens out.

    >>> relative(torch.tensor([0.1, 0.2]), 1e7)
    tensor([1., 1.])
    """
    strength = torch.tanh(beta * reputation)
    return strength / strength.max() if strength.max() > 0 else strength
