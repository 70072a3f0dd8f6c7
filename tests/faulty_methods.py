"""Methods that break the laws of fedakd.testing, one each where that is possible, and one that breaks none.

They stand in a module of their own so that worker processes can import them.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedakd import trees
from fedakd.engine.base import Site
from fedakd.method import Client, Method, Server
from fedakd.methods.fedavg import FedAvg
from fedakd.trees import Params, Tree


class Averaging(Method):
    """What a user might write: the mean of what comes, and a head that stays with the client."""

    def server_init(self, server: Server, params: Params) -> Tree:
        return {"model": params}

    def send(self, state: Tree, client: int) -> Tree:
        return {"model": state["model"]}

    def client_init(self, client: Client, params: Params) -> Tree:
        return {"own": params}

    @property
    def private(self) -> tuple[str, ...]:
        return ("own",)

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        own = client.fit(state["own"], client.data, purpose="own")
        return {"own": own}, {"model": client.fit(state["model"], client.data)}

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        if not updates:
            return state
        return {"model": trees.mean([u["model"] for u in updates.values()], [1.0] * len(updates))}

    def models(self, state: Tree) -> dict[str, Params]:
        return {"personal": state["own"], "global": state["model"]}


@dataclass(frozen=True)
class Mine(Averaging):
    """Breaks no law."""

    rate: float = 1.0


def shifted(params: Params, by: float) -> Params:
    return {name: part + by for name, part in params.items()}


# what a method is


@dataclass
class Thawed(Averaging):
    """Not frozen."""

    rate: float = 1.0


class Bare(Averaging):
    """No dataclass, and an attribute that is not a field."""

    def __init__(self) -> None:
        self.rate = 1.0


class Undecorated(FedAvg):
    """A field that is none, for the decorator is missing."""

    rate: float = 1.0


@dataclass(frozen=True)
class Lenient(Averaging):
    """Equal whatever its rate is."""

    rate: float = field(default=1.0, compare=False)


@dataclass(frozen=True)
class Unpicklable(Averaging):
    rate: Callable[[], float] = lambda: 1.0


@dataclass(frozen=True)
class Forgetful(Averaging):
    """Comes back from pickling with another rate."""

    rate: float = 2.0

    def __reduce__(self) -> tuple[Any, ...]:
        return Forgetful, (1.0,)


# what it must bear


@dataclass(frozen=True)
class Crashing(FedAvg):
    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        return super().client_update(client, {"model": state["modell"]})


@dataclass(frozen=True)
class WrongKind(FedAvg):
    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        return super().client_update(client, state)[1]  # type: ignore[return-value]


@dataclass(frozen=True)
class Exploding(FedAvg):
    """Its training fails."""

    def fitted(self, client: Client, w_g: Params) -> Params:
        return client.fit(w_g, client.data, recipe=replace(client.recipe, lr=float("inf")))


@dataclass(frozen=True)
class BufferShy(FedAvg):
    def server_init(self, server: Server, params: Params) -> Tree:
        if server.buffers(params):
            raise NotImplementedError("no running statistics please")
        return super().server_init(server, params)


@dataclass(frozen=True)
class Quorum(FedAvg):
    """Wants more than half of the clients."""

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        if 0 < 2 * len(updates) <= len(server.clients):
            raise ValueError("too few")
        return super().server_update(server, state, updates)


@dataclass(frozen=True)
class Faithful(FedAvg):
    """Wants everybody who has ever been there."""

    def server_init(self, server: Server, params: Params) -> Tree:
        seen = torch.zeros(len(server.clients))
        return {**super().server_init(server, params), "seen": seen}

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        if not updates:
            return state
        known = [k for k in range(len(state["seen"])) if state["seen"][k]]
        assert all(updates[k] for k in known)
        seen = torch.tensor(
            [float(bool(state["seen"][k]) or k in updates) for k in range(len(state["seen"]))]
        )
        return {**super().server_update(server, state, updates), "seen": seen}


@dataclass(frozen=True)
class Punctual(FedAvg):
    """Wants to meet everybody in round 1."""

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        if client.stream[1] > 1 and "trained" not in state:
            raise KeyError("trained")
        return super().client_update(client, state)


@dataclass(frozen=True)
class Spread(FedAvg):
    """Divides by the number of rows minus one."""

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        kept, update = super().client_update(client, state)
        return kept, {**update, "spread": float(client.data.y.sum()) / (client.n - 1)}


@dataclass(frozen=True)
class Contrastive(FedAvg):
    """Wants a row of another class, where there is another row."""

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        if client.n > 2:
            next(int(y) for y in client.data.y if y != client.data.y[0])
        return super().client_update(client, state)


@dataclass(frozen=True)
class Normalised(FedAvg):
    """Moves by the update divided by its length."""

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        trained = self.fitted(client, state["model"])
        step = trees.sub(client.parameters(trained), client.parameters(state["model"]))
        length = torch.linalg.vector_norm(trees.vector(step))
        return {"trained": trained}, {
            "model": trees.move(trained, {n: s / length for n, s in step.items()}, 0.01),
            "n": float(client.n),
        }


@dataclass(frozen=True)
class Proportional(FedAvg):
    """Weighs clients by their shares of all validation accuracy."""

    needs_validation = True

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        if not updates:
            return state
        right = {k: server.accuracy(update["model"], server.held_back) for k, update in updates.items()}
        shares = [own / sum(right.values()) for own in right.values()]
        return {**state, "model": trees.mean((update["model"] for update in updates.values()), shares)}


@dataclass(frozen=True)
class Late(FedAvg):
    """Takes something down once, in its fourth round: no fault."""

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        new = super().server_update(server, state, updates)
        rounds = state.get("rounds", 0.0) + 1
        return (
            {**new, "rounds": rounds, **({"noted": new["model"]} if rounds == 4 else {})}
            if updates
            else state
        )


@dataclass(frozen=True)
class Others(FedAvg):
    """Divides by the number of other clients."""

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        1 / (len(server.clients) - 1)
        return super().server_update(server, state, updates)


@dataclass(frozen=True)
class Present(FedAvg):
    """Divides by the number of clients that came, minus one."""

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        1 / (len(updates) - 1)
        return super().server_update(server, state, updates)


# what hooks give


@dataclass(frozen=True)
class Decorated(FedAvg):
    """A view with a leaf the model does not have."""

    def models(self, state: Tree) -> dict[str, Params]:
        return {"global": {**state["model"], "extra": torch.zeros(2)}}


@dataclass(frozen=True)
class Viewless(FedAvg):
    def models(self, state: Tree) -> dict[str, Params]:
        return {}


@dataclass(frozen=True)
class Growing(FedAvg):
    """A view more once a client has trained."""

    def models(self, state: Tree) -> dict[str, Params]:
        return {"global": state["model"], **({"own": state["trained"]} if "trained" in state else {})}


@dataclass(frozen=True)
class Unnormed(FedAvg):
    """Throws the running statistics of training away."""

    def fitted(self, client: Client, w_g: Params) -> Params:
        return {**client.fit(w_g, client.data), **client.buffers(w_g)}


@dataclass(frozen=True)
class Untrained(Averaging):
    """Judged by a model it never trains."""

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        return {"own": state["own"]}, super().client_update(client, state)[1]


@dataclass(frozen=True)
class Miscounting(FedAvg):
    def contributions(self, state: Tree) -> Tensor | None:
        return state["sizes"][1:]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Infinite(FedAvg):
    """The first contributions are 0 / 0."""

    def server_init(self, server: Server, params: Params) -> Tree:
        return {**super().server_init(server, params), "earned": torch.zeros(len(server.clients))}

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        if not updates:
            return state
        return {**super().server_update(server, state, updates), "earned": state["earned"] + 1}

    def contributions(self, state: Tree) -> Tensor | None:
        return state["earned"] / state["earned"].sum()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Restless(FedAvg):
    """Counts rounds from which nobody returned."""

    def server_init(self, server: Server, params: Params) -> Tree:
        return {**super().server_init(server, params), "rounds": 0.0}

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        return {**super().server_update(server, state, updates), "rounds": state["rounds"] + 1}


@dataclass(frozen=True)
class Hoarding(FedAvg):
    """Its server keeps something of every round."""

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        new = super().server_update(server, state, updates)
        return {**new, f"round {len(state)}": 1.0} if updates else state


@dataclass(frozen=True)
class Chronicling(FedAvg):
    """Its server's one tensor becomes longer from round to round."""

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        new = super().server_update(server, state, updates)
        history = torch.cat([state.get("history", torch.zeros(1)), torch.ones(1)])
        return {**new, "history": history} if updates else state


# what it must leave alone


@dataclass(frozen=True)
class InPlace(FedAvg):
    """Writes the mean into the state it was given."""

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        for name, part in super().server_update(server, state, updates)["model"].items():
            state["model"][name].copy_(part)
        return state


@dataclass(frozen=True)
class Popping(FedAvg):
    """Takes a leaf out of the update it was given."""

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        for update in updates.values():
            update.pop("n")
        return super().server_update(server, state, updates)


@dataclass(frozen=True)
class Augmenting(FedAvg):
    """Adds noise to the client's own rows."""

    def fitted(self, client: Client, w_g: Params) -> Params:
        client.data.x.mul_(0.9)  # type: ignore[union-attr]
        return super().fitted(client, w_g)


@dataclass(frozen=True)
class Freezing(FedAvg):
    """Leaves the shared model object with a parameter that is not trained any more."""

    def fitted(self, client: Client, w_g: Params) -> Params:
        next(client.module.parameters()).requires_grad_(False)
        return super().fitted(client, w_g)


@dataclass(frozen=True)
class Annealing(FedAvg):
    """Changes its own field, frozen or not."""

    rate: float = 1.0

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        object.__setattr__(self, "rate", 0.9 * self.rate)
        return super().server_update(server, state, updates)


@dataclass(frozen=True)
class Noisy(FedAvg):
    """Draws from a global random generator."""

    source: str = "torch"

    def fitted(self, client: Client, w_g: Params) -> Params:
        draw = {"torch": lambda: float(torch.rand(())), "numpy": np.random.rand, "random": random.random}
        return shifted(super().fitted(client, w_g), 1e-3 * draw[self.source]())


@dataclass(frozen=True)
class Keeping(FedAvg):
    """A client keeps something that is neither tensor, float nor dict."""

    what: str = "int"

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        odd = {
            "int": 1,
            "list": [1.0],
            "name": {"a/b": 1.0},
            "grad": {"w": torch.ones(2, requires_grad=True)},
        }
        kept, update = super().client_update(client, state)
        return {**kept, "odd": odd[self.what]}, update


# the same always


@dataclass(frozen=True)
class Clock(FedAvg):
    def fitted(self, client: Client, w_g: Params) -> Params:
        return shifted(super().fitted(client, w_g), 1e-3 * (time.perf_counter_ns() % 1000))


@dataclass(frozen=True)
class Counting(FedAvg):
    """Counts its calls in the class."""

    calls: ClassVar[list[int]] = []

    def fitted(self, client: Client, w_g: Params) -> Params:
        self.calls.append(client.id)
        return shifted(super().fitted(client, w_g), 1e-3 * len(self.calls))


@dataclass(frozen=True)
class Local(FedAvg):
    """Depends on the process it runs in."""

    def fitted(self, client: Client, w_g: Params) -> Params:
        return shifted(super().fitted(client, w_g), 1e-6 * os.getpid())


@dataclass(frozen=True)
class Ordered(FedAvg):
    """Depends on the order of names, which is another one after the wire."""

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        new = super().server_update(server, state, updates)
        for update in updates.values():
            first = next(iter(update["model"].values()))
            new = {**new, "model": shifted(new["model"], 1e-3 * float(first.sum()))}
        return new


MEMORY: dict[Any, Tensor] = {}


@dataclass(frozen=True)
class Remembering(FedAvg):
    """The server keeps its momentum in a global, and so a run cannot be resumed."""

    def server_init(self, server: Server, params: Params) -> Tree:
        MEMORY["server"] = torch.zeros(())
        return super().server_init(server, params)

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        if not updates:
            return state
        MEMORY["server"] = MEMORY["server"] + 1e-3
        new = super().server_update(server, state, updates)
        return {**new, "model": shifted(new["model"], float(MEMORY["server"]))}


@dataclass(frozen=True)
class RememberingClient(FedAvg):
    """The same at the clients."""

    def client_init(self, client: Client, params: Params) -> Tree:
        MEMORY[client.id] = torch.zeros(())
        return super().client_init(client, params)

    def fitted(self, client: Client, w_g: Params) -> Params:
        MEMORY[client.id] = MEMORY.get(client.id, torch.zeros(())) + 1e-3
        return shifted(super().fitted(client, w_g), float(MEMORY[client.id]))


@dataclass(frozen=True)
class Seedless(FedAvg):
    """Starts from zeros and takes rows in one order, whatever the seed."""

    def server_init(self, server: Server, params: Params) -> Tree:
        fixed = {name: torch.full_like(part, 0.1) for name, part in params.items()}
        return super().server_init(server, fixed)

    def fitted(self, client: Client, w_g: Params) -> Params:
        return replace(client, stream=(0, 0, 0)).fit(w_g, client.data)


# rows and models that stay where they are


@dataclass(frozen=True)
class Showing(FedAvg):
    """A client sends a row of its own."""

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        kept, update = super().client_update(client, state)
        return kept, {**update, "sample": client.data.x[0].flatten().double()}  # type: ignore[index]


@dataclass(frozen=True)
class Publishing(FedAvg):
    """The server sends its validation rows."""

    needs_validation: ClassVar[bool] = True

    def server_init(self, server: Server, params: Params) -> Tree:
        return {**super().server_init(server, params), "rows": server.validation.x}  # type: ignore[union-attr]


def test_rows() -> Tensor:
    """The test rows of the site that is calling, which no method should be able to name."""
    frame = sys._getframe()
    while not isinstance(frame.f_locals.get("self"), Site):
        frame = frame.f_back  # type: ignore[assignment]
    return frame.f_locals["self"].test.x  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Peeping(FedAvg):
    """A client looks at its test rows."""

    def fitted(self, client: Client, w_g: Params) -> Params:
        return shifted(super().fitted(client, w_g), 1e-3 * float(test_rows().mean()))


@dataclass(frozen=True)
class PeepingAndKeeping(FedAvg):
    """A client keeps one of its test rows."""

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        kept, update = super().client_update(client, state)
        return {**kept, "row": test_rows()[0].clone()}, update


@dataclass(frozen=True)
class Undeclared(FedAvg):
    """Uses validation rows without saying so."""

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        new = super().server_update(server, state, updates)
        if not updates:
            return new
        assert server.validation is not None
        return {**new, "model": shifted(new["model"], 1e-3 * server.risk(new["model"], server.validation))}


@dataclass(frozen=True)
class Tolerant(FedAvg):
    """Says it needs validation rows, and would go on without."""

    needs_validation: ClassVar[bool] = True


@dataclass(frozen=True)
class Telling(Averaging):
    """Sends its private model, by another name."""

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        kept, update = super().client_update(client, state)
        return kept, {**update, "hint": kept["own"]}


@dataclass(frozen=True)
class TellingAll(Averaging):
    """Sends its private model as one long row."""

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        kept, update = super().client_update(client, state)
        return kept, {**update, "hint": trees.vector(kept["own"]).double()}


@dataclass(frozen=True)
class TellingBias(Averaging):
    """Sends three numbers of its private model."""

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        kept, update = super().client_update(client, state)
        return kept, {**update, "hint": kept["own"]["head.bias"]}


@dataclass(frozen=True)
class Misspelt(Averaging):
    """Promises to keep what it does not keep."""

    @property
    def private(self) -> tuple[str, ...]:
        return ("owm",)
