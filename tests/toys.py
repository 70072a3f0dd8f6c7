"""Small federations for tests: sizes differ between clients, labels can be learned, nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from fedakd.engine.base import Engine, Rows, Spec
from fedakd.engine.serial import Serial
from fedakd.examples import Examples
from fedakd.method import Client, ClientInfo, Method, Server
from fedakd.models import factory
from fedakd.rounds import Result, run
from fedakd.training import Recipe, Task
from fedakd.trees import Tree

SIZES = (23, 11, 5)
TEN = tuple(range(3, 23, 2))  # ten clients, all of different size


def double(make: Callable[[], nn.Module]) -> nn.Module:
    return make().double()


NETS = {
    "mlp": factory("mlp", (1, 8, 8), 4),
    "linear": factory("linear", (1, 8, 8), 4),
    "cnn": factory("cnn", (1, 8, 8), 4),  # has batch norm
}
NETS |= {f"{name}64": partial(double, NETS[name]) for name in ("mlp", "linear")}  # rows become double too


def rows(count: int, seed: int) -> Examples:
    """Images (count, 1, 8, 8) whose brightest quarter is their label, under noise."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (count,), generator=rng)
    x = torch.rand(count, 1, 8, 8, generator=rng) * 0.8
    for row, label in enumerate(y.tolist()):
        x[row, 0, 4 * (label // 2) : 4 * (label // 2) + 4, 4 * (label % 2) : 4 * (label % 2) + 4] += 0.3
    return Examples(x.contiguous(memory_format=torch.channels_last), y)


def spec(
    method: Method,
    sizes: Sequence[int] = SIZES,
    net: str = "mlp",
    recipe: Recipe | None = None,
    seed: int = 0,
    data: dict[int, Examples] | None = None,
) -> Spec:
    """A federation of toy rows; `data` replaces the training rows of some clients."""
    own = {k: rows(n, 100 + k) for k, n in enumerate(sizes)} | (data or {})
    clients = tuple(Rows(k, fitting(own[k], net), fitting(rows(12, 200 + k), net)) for k in sorted(own))
    return Spec(method, Task(NETS[net]), recipe or Recipe(batch_size=8, lr=0.1), seed, clients)


def fitting(data: Examples, net: str) -> Examples:
    return Examples(data.x.double(), data.y) if net.endswith("64") else data  # type: ignore[union-attr]


def server(spec: Spec) -> Server:
    infos = [ClientInfo(one.id, len(one.train)) for one in spec.clients]
    validation = rows(20, 300)
    same = spec.clients[0].train.x.dtype  # type: ignore[union-attr]
    validation = Examples(validation.x.to(same), validation.y)  # type: ignore[union-attr]
    return Server(spec.task, spec.recipe, clients=infos, validation=validation)


def client(spec: Spec, k: int = 0, round: int = 1) -> Client:
    """Client k as it stands in a round."""
    own = Client(spec.task, spec.recipe, id=k, data=spec.clients[k].train)
    own.stream = (spec.seed, round, k + 1)
    return own


@dataclass
class Played:
    """A run with everything that was kept and sent on the way."""

    result: Result
    kept: list[dict[int, Tree]]  # after each round, by client
    states: list[Tree]  # the server's, after each round
    messages: list[Tree]
    updates: list[Tree]


class Recording(Serial):
    """The serial engine, listening."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.messages: list[Tree] = []
        self.updates: list[Tree] = []

    def train(self, round, messages):  # type: ignore[no-untyped-def]
        trained = super().train(round, messages)
        self.messages += [messages[k] for k in messages]
        self.updates += list(trained.updates.values())
        return trained


def play(spec: Spec, rounds: int = 3, **options: float) -> Played:
    """Runs the spec's method and keeps everything."""
    engine = Recording(spec)
    kept: list[dict[int, Tree]] = []
    states: list[Tree] = []

    def on_round(_: object, state: Tree) -> None:
        kept.append({k: site.kept for k, site in engine.sites.items()})
        states.append(state)

    result = run(
        spec.method, engine, server(spec), rounds=rounds, seed=spec.seed, on_round=on_round, **options
    )  # type: ignore[arg-type]
    return Played(result, kept, states, engine.messages, engine.updates)


def outcome(spec: Spec, engine: Engine, rounds: int = 2) -> tuple[Tree, list[object]]:
    """What must not depend on the engine: the last state and every round but its seconds."""
    try:
        result = run(spec.method, engine, server(spec), rounds=rounds, seed=spec.seed)
    finally:
        engine.close()
    return result.state, [replace(record, seconds=0.0) for record in result.rounds]
