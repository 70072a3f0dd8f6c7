"""What a federated method is: eight hooks, client and server half in one class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedakd.errors import FedakdError
from fedakd.examples import Examples
from fedakd.training import Bench, Recipe
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class ClientInfo:
    """What the server knows of a client."""

    id: int
    n: int  # training rows


@dataclass
class Client(Bench):
    """A bench with one client's training rows; test rows are out of reach."""

    id: int = 0
    data: Examples = field(kw_only=True)

    @property
    def n(self) -> int:
        return len(self.data)


@dataclass
class Server(Bench):
    """A bench that knows who takes part, and the validation rows set aside for it."""

    clients: list[ClientInfo] = field(default_factory=list)
    validation: Examples | None = None

    @property
    def sizes(self) -> Tensor:
        """Every client's training rows, [K]."""
        return torch.tensor([client.n for client in self.clients], dtype=torch.float64)

    @property
    def held_back(self) -> Examples:
        """The validation rows, which a method that says needs_validation can rely on."""
        if self.validation is None:
            raise FedakdError("a method that asks for validation rows must say needs_validation = True")
        return self.validation


class Method(ABC):
    """Subclasses are frozen dataclasses whose fields are the hyper-parameters, and nothing else.

    Hooks are pure: they return new trees and change nothing they are given.
    """

    title: ClassVar[str] = ""  # as its authors write it, where that is not the name of the class
    citation: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    confidence: ClassVar[Literal["official", "reconstructed"]] = "official"
    needs_validation: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # fields that differ from the authors' own

    @property
    def private(self) -> tuple[str, ...]:
        """The names under which a client keeps what the method promises never to send."""
        return ()

    def recipe(self, usual: Recipe) -> Recipe:
        """How clients fit the model, where the method cannot use the recipe of the run."""
        return usual

    @abstractmethod
    def server_init(self, server: Server, params: Params) -> Tree:
        """The server's state before the first round."""

    @abstractmethod
    def send(self, state: Tree, client: int) -> Tree:
        """The message for one client."""

    @abstractmethod
    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        """The state after a round; a client that failed or was not asked has no key in `updates`."""

    def client_init(self, client: Client, params: Params) -> Tree:
        """What a client keeps before the first round."""
        return {}

    def receive(self, kept: Tree, message: Tree) -> Tree:
        """The client's state on arrival of a message: what it trains from and is judged by."""
        return {**kept, **message}

    @abstractmethod
    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        """One round at a client: (what it keeps, what it sends)."""

    @abstractmethod
    def models(self, state: Tree) -> dict[str, Params]:
        """The client's models by view; the first is the one the method is judged by.

        The view `global` is the model all clients share. Where all are judged on one common test set it
        cannot tell them apart, and the method is judged by its first other view.
        """

    def remarks(self, state: Tree) -> list[str]:
        """What a reader of the results must know, from the server's state after the last round."""
        return []

    def contributions(self, state: Tree) -> Tensor | None:
        """What the method holds each client to have contributed, [K], if it says."""
        return None
