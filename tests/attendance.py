"""Rounds with a list of who is there, for laws about clients that miss some; trees go over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

import toys
from fedakd import trees, wire
from fedakd.engine.base import Spec
from fedakd.method import Client, Server
from fedakd.trees import Tree


@dataclass
class Turn:
    """A round, with what everybody had after it."""

    messages: dict[int, Tree]
    updates: dict[int, Tree]
    kept: dict[int, Tree]  # of all clients
    state: Tree


def attend(spec: Spec, present: Sequence[Iterable[int]], server: Server | None = None) -> list[Turn]:
    """The method's rounds with the given clients present in each."""
    method, server = spec.method, server or toys.server(spec)
    params = server.init(spec.seed)
    state = over_the_wire(method.server_init(server, params))
    kept = {
        k: over_the_wire(method.client_init(toys.client(spec, k), params)) for k in range(len(spec.clients))
    }
    turns = []
    for number, clients in enumerate(present, 1):
        server.stream = (spec.seed, number, 0)
        messages, updates = {k: over_the_wire(method.send(state, k)) for k in clients}, {}
        for k, message in messages.items():
            received = method.receive(kept[k], message)
            own, sent = method.client_update(toys.client(spec, k, number), received)
            kept, updates[k] = {**kept, k: over_the_wire(own)}, over_the_wire(sent)
        state = over_the_wire(method.server_update(server, state, updates))
        turns.append(Turn(messages, updates, kept, state))
    return turns


def assert_leaves_alone(spec: Spec, turn: Turn, k: int, round: int) -> Client:
    """Client k's next update and the server's change nothing they are given; the client, for its counts."""
    method, client = spec.method, toys.client(spec, k, round)
    updates = {str(one): update for one, update in turn.updates.items()}
    given: Tree = {"kept": turn.kept[k], "state": turn.state, "updates": updates}
    before = trees.transform(given, torch.clone)
    method.client_update(client, method.receive(turn.kept[k], method.send(turn.state, k)))
    method.server_update(toys.server(spec), turn.state, turn.updates)
    assert trees.equal(given, before)
    return client


def over_the_wire(tree: Tree) -> Tree:
    return wire.loads(wire.dumps(tree))


def evaluated(spec: Spec, turn: Turn, k: int) -> Tree:
    """The model client k is judged by after this round."""
    return spec.method.models(spec.method.receive(turn.kept[k], spec.method.send(turn.state, k)))["personal"]
