"""Where clients live: the seam between the round loop and one process, many processes or a network."""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedakd import trees, wire
from fedakd.errors import FedakdError
from fedakd.examples import Examples
from fedakd.method import Client, Method
from fedakd.training import Diverged, Recipe, Task, made
from fedakd.trees import Params, Tree

Scores = dict[str, float]  # "personal/accuracy", "global/loss", ...
SHARED_VIEWS = ("global", "shared")  # models that several clients hold, with statistics averaged over them
Progress = Callable[[str, int], None]  # stage ("train" or "evaluate") and the client that has just finished


class ClientError(FedakdError):
    """A method's code failed at a client; the message says where."""


@dataclass(frozen=True)
class Rows:
    """What one client's site is built from."""

    id: int
    train: Examples
    test: Examples
    weights: Tensor | None = None  # the share of each test row, summing to 1; None: all count equally


@dataclass(frozen=True)
class Spec:
    """Everything workers need to build their sites; picklable."""

    method: Method
    task: Task
    recipe: Recipe
    seed: int
    clients: tuple[Rows, ...]


class Report(NamedTuple):
    """How a client's training went; `failure` says why there is no update."""

    gradients: int
    seconds: float
    bytes_up: int
    bytes_down: int
    failure: str | None = None


class Trained(NamedTuple):
    updates: Mapping[int, Tree]  # in the order of client ids; a client that failed is absent
    reports: dict[int, Report]


class Judged(NamedTuple):
    """One client's models on its test rows."""

    scores: Scores
    outcomes: dict[str, NDArray[np.bool_]]  # by view: which rows it classifies correctly


class Engine(Protocol):
    """Calls are made one at a time; messages are read in the order of their keys."""

    progress: Progress | None
    notices: list[str]  # what went wrong on the way and was mended

    def start(self, params: Params) -> None: ...
    def train(self, round: int, messages: Mapping[int, Tree]) -> Trained: ...
    def evaluate(self, round: int, messages: Mapping[int, Tree]) -> dict[int, Judged]: ...
    def save(self, folder: Path) -> None: ...
    def load(self, folder: Path) -> None: ...
    def close(self) -> None: ...


class Seen:
    """The outputs of the last shared models: on rows that all clients share they are computed once."""

    def __init__(self) -> None:
        self.last: deque[tuple[Params, Examples, Tensor]] = deque(maxlen=4)  # as many as a method has views

    def outputs(self, bench: Client, params: Params, test: Examples) -> Tensor:
        for known, rows, logits in self.last:
            if rows is test and known.keys() == params.keys() and all(known[n] is params[n] for n in known):
                return logits
        logits = bench.logits(params, test)
        self.last.append((params, test, logits))
        return logits


@dataclass
class Site:
    """One client, wherever it runs: its bench, what it keeps, and test rows that only the site can see."""

    client: Client
    test: Examples
    method: Method
    seed: int
    weights: Tensor | None = None
    kept: Tree = field(default_factory=dict)

    def start(self, params: Params) -> None:
        with self.at(0, "client_init"):
            self.kept = self.method.client_init(self.client, params)

    def train(self, round: int, message: Tree) -> tuple[Tree | None, Report]:
        """The update, or None and the reason; a client that fails keeps what it had."""
        began, self.client.gradients = time.perf_counter(), 0
        update, failure = None, None
        with self.at(round, "client_update"):
            try:
                self.kept, update = self.method.client_update(
                    self.client, self.method.receive(self.kept, message)
                )
            except Diverged as error:
                failure = f"round {round}, client {self.client.id}, {error}"
        seconds, sizes = time.perf_counter() - began, (trees.nbytes(update or {}), trees.nbytes(message))
        return update, Report(self.client.gradients, seconds, *sizes, failure)

    def evaluate(self, round: int, message: Tree, seen: Seen) -> Judged:
        scores: Scores = {}
        outcomes: dict[str, NDArray[np.bool_]] = {}
        with self.at(round, "evaluate"):
            for view, params in self.method.models(self.method.receive(self.kept, message)).items():
                logits = self.outputs(view, params, seen)
                correct = logits.argmax(1) == self.test.y
                scores[f"{view}/accuracy"] = weighted_mean(correct.double(), self.weights)
                scores[f"{view}/loss"] = self.loss(logits)
                outcomes[view] = correct.numpy()
        return Judged(scores, outcomes)

    def outputs(self, view: str, params: Params, seen: Seen) -> Tensor:
        """The model's outputs on the test rows, (rows, classes).

        A model that is the client's own is judged with batch-norm statistics of its own training rows: those
        kept while it trained lag behind, and a reward changes parameters but no statistics.
        """
        if view in SHARED_VIEWS:
            return seen.outputs(self.client, params, self.test)
        return self.client.logits(self.client.update_bn(params, self.client.data), self.test)

    def loss(self, logits: Tensor) -> float:
        loss, y = self.client.task.loss, self.test.y
        if self.weights is None:
            return float(loss(logits, y))
        if "reduction" in inspect.signature(loss).parameters:  # all losses of torch.nn.functional
            return weighted_mean(loss(logits, y, reduction="none"), self.weights)  # type: ignore[call-arg]
        rows = zip(torch.split(logits, 1), torch.split(y, 1), strict=True)
        return weighted_mean(torch.stack([loss(*row) for row in rows]), self.weights)

    @contextmanager
    def at(self, round: int, stage: str) -> Iterator[None]:
        """Sets the client's random stream for this round, and adds the place to errors."""
        self.client.stream = (self.seed, round, self.client.id + 1)  # 0 is the server
        try:
            yield
        except FedakdError:
            raise
        except Exception as error:  # a method is anybody's code and may raise anything
            place = f"client {self.client.id}, round {round}, {stage}"
            raise ClientError(f"{place}: {type(error).__name__}: {error}") from error


def build(spec: Spec) -> dict[int, Site]:
    """The sites of these clients; they share one model object, into which state is loaded."""
    module = made(spec.task)
    return {
        rows.id: Site(
            Client(spec.task, spec.recipe, module=module, id=rows.id, data=rows.train),
            rows.test,
            spec.method,
            spec.seed,
            rows.weights,
        )
        for rows in spec.clients
    }


def weighted_mean(values: Tensor, weights: Tensor | None) -> float:
    """The mean of the values, by these weights if there are any.

    >>> weighted_mean(torch.tensor([1.0, 3.0]), torch.tensor([0.75, 0.25]))
    1.5
    """
    return float(values.mean() if weights is None else (values.double() * weights).sum() / weights.sum())


def read_kept(folder: Path) -> dict[int, Tree]:
    """What every client kept, from files written by any engine with any number of workers."""
    files = sorted(folder.glob("clients-*.safetensors"))
    return {int(client): kept for path in files for client, kept in wire.load(path).items()}
