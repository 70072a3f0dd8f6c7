"""A method under observation: every hook is passed on, and what it is given and gives is looked at."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedakd.examples import Examples
from fedakd.method import Client, Method, Server
from fedakd.testing.report import Violation, differences
from fedakd.training import Bench, Diverged
from fedakd.trees import Params, Tree, leaves

GIVEN = {
    "server_init": ("server", "params"),
    "send": ("state", "client"),
    "server_update": ("server", "state", "updates"),
    "client_init": ("client", "params"),
    "receive": ("kept", "message"),
    "client_update": ("client", "state"),
    "models": ("state",),
    "contributions": ("state",),
}
Kind = Literal["state", "message", "kept", "update", "views", "contributions"]


class Event(NamedTuple):
    """Something a hook gave."""

    kind: Kind
    client: int | None
    round: int
    what: Any

    @property
    def place(self) -> str:
        return at(f"{self.kind}", self.client, self.round)


def at(what: str, client: int | None, round: int) -> str:
    return f"{what}, round {round}" if client is None else f"{what}, client {client}, round {round}"


@dataclass
class Log:
    """All that was seen in one run."""

    events: list[Event] = field(default_factory=list)
    changed: list[Violation] = field(default_factory=list)  # arguments that are not what they were
    disturbed: list[Violation] = field(default_factory=list)  # the process around, likewise
    failed: str | None = None  # the place of the hook that raised

    def of(self, *kinds: Kind) -> Iterator[Event]:
        return (event for event in self.events if event.kind in kinds)


class Watched(Method):
    """Passes every hook on to a method and writes down what happens; one for the server, one a client."""

    needs_validation = False  # the instance's own answer is set below

    def __init__(
        self,
        method: Method,
        log: Log,
        bench: Bench,
        client: int | None = None,
        absent: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        self.method, self.log, self.bench, self.client, self.absent = method, log, bench, client, absent
        self.needs_validation = method.needs_validation  # type: ignore[misc]

    @property
    def round(self) -> int:
        return self.bench.stream[1] if len(self.bench.stream) > 1 else 0

    def server_init(self, server: Server, params: Params) -> Tree:
        return self.heard("state", None, self.call("server_init", server, params))

    def send(self, state: Tree, client: int) -> Tree:
        return self.heard("message", client, self.call("send", state, client))

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        return self.heard("state", None, self.call("server_update", server, state, updates))

    def client_init(self, client: Client, params: Params) -> Tree:
        return self.heard("kept", self.client, self.call("client_init", client, params))

    def receive(self, kept: Tree, message: Tree) -> Tree:
        return tree(self.call("receive", kept, message), "receive")

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        if (client.id, self.round) in self.absent:
            raise Diverged("left out on purpose by the check")
        came = self.call("client_update", client, state)
        if not (isinstance(came, tuple) and len(came) == 2):
            raise TypeError(f"client_update must return (kept, update), got {type(came).__name__}")
        return self.heard("kept", self.client, came[0]), self.heard("update", self.client, came[1])

    def models(self, state: Tree) -> dict[str, Params]:
        return self.heard("views", self.client, self.call("models", state))

    def contributions(self, state: Tree) -> Tensor | None:
        came: Tensor | None = self.call("contributions", state)
        self.log.events.append(Event("contributions", None, self.round, came))
        return came

    def heard(self, kind: Kind, client: int | None, came: Any) -> Tree:
        self.log.events.append(Event(kind, client, self.round, tree(came, kind)))
        return tree(came, kind)

    def call(self, hook: str, *given: Any) -> Any:
        place = at(hook, self.client, self.round)
        before = picture(GIVEN[hook], given, torch.clone) | own(self.method)
        around = surroundings()
        try:
            came = getattr(self.method, hook)(*given)
        except Exception:  # of the method, which may raise anything: only its place is noted
            self.log.failed = place
            raise
        self.log.changed += differences(place, before, picture(GIVEN[hook], given) | own(self.method))
        self.log.disturbed += disturbances(place, around, surroundings())
        return came


def tree(came: Any, kind: str) -> Tree:
    if not isinstance(came, dict):
        raise TypeError(f"{kind} must be a dict of tensors, numbers and dicts, got {type(came).__name__}")
    return came


def picture(
    names: tuple[str, ...], given: tuple[Any, ...], copy: Callable[[Tensor], Tensor] = lambda part: part
) -> dict[str, Any]:
    """Arguments of a hook as leaves by path."""
    seen: dict[str, Any] = {}
    for name, argument in zip(names, given, strict=True):
        parts = bench_parts(argument) if isinstance(argument, Bench) else argument
        parts = {str(key): part for key, part in parts.items()} if isinstance(parts, Mapping) else parts
        seen |= dict(leaves({name: parts}))
    return {path: copy(leaf) if isinstance(leaf, Tensor) else leaf for path, leaf in seen.items()}


def bench_parts(bench: Bench) -> Tree:
    """What of a client or server a method must leave alone; the model's values are scratch space."""
    held = getattr(bench, "data", None) or getattr(bench, "validation", None)
    rows = {"x": held.x, "y": held.y} if isinstance(held, Examples) else {}
    layers = tuple((name, len(layer._forward_hooks)) for name, layer in bench.module.named_modules())
    trained = tuple(name for name, part in bench.module.named_parameters() if part.requires_grad)
    who = tuple(getattr(bench, "clients", ()))
    facts = {"recipe": bench.recipe, "stream": bench.stream, "clients": who}
    return {"rows": rows, **facts, "layers": layers, "parameters that need gradients": trained}


def own(method: Method) -> dict[str, Any]:
    """A copy of all a method holds, where it can be copied."""
    copied: dict[str, Any] = {}
    for name, value in attributes(method).items():
        try:
            copied[f"the method's {name}"] = deepcopy(value)
        except Exception:  # a lock, a file: that it cannot travel is for another law to say
            copied[f"the method's {name}"] = value
    return copied


def attributes(method: Method) -> dict[str, Any]:
    named: list[str] = [one.name for one in fields(method)] if is_dataclass(method) else []
    return {**vars(method), **{name: getattr(method, name) for name in named}}  # slots are not in vars


def surroundings() -> dict[str, Any]:
    """What all code of a process shares, and a hook must leave as it was."""
    _, key, *position = np.random.get_state(legacy=True)
    return {
        "torch's random state": zlib.crc32(torch.get_rng_state().numpy().tobytes()),
        "numpy's random state": (zlib.crc32(np.asarray(key).tobytes()), *position),
        "the state of the module random": hash(random.getstate()),
        "torch's number of threads": torch.get_num_threads(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's gradient mode": torch.is_grad_enabled(),
    }


def disturbances(place: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Violation]:
    for what in before:
        if before[what] != after[what]:
            hint = "random numbers come from client.generator(purpose) or server.generator(purpose)"
            yield Violation(f"{place}, {what}", f"it to be left alone ({hint})", "another one")
