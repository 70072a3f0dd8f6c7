"""The federations a method is tried on: tiny, made from seeds, each with one thing that is hard about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedakd.engine.base import Rows, Spec
from fedakd.examples import Examples
from fedakd.method import ClientInfo, Method, Server
from fedakd.models import factory
from fedakd.training import Recipe, Task

SHAPE, CLASSES = (1, 4, 4), 3
SILENT = CLASSES - 1  # the class of which the loss `deaf` wants to hear nothing
SIZES = (9, 6, 5, 7)  # four clients, so that three workers all have one and one of them two
TESTED, VALIDATED = 5, 12  # rows

NETS = {"plain": factory("mlp", SHAPE, CLASSES), "batch norm": factory("cnn", SHAPE, CLASSES)}
# batches so small that every client takes two steps at least: after one, models that start alike and see the
# same rows have the same running statistics, whatever they are trained for
RECIPES = {
    "plain": Recipe(batch_size=3, lr=0.01, optimizer="adam"),
    "batch norm": Recipe(batch_size=3, lr=0.1),
}


def deaf(logits: Tensor, y: Tensor) -> Tensor:
    """Cross entropy whose gradient on rows of the silent class is exactly zero."""
    return (F.cross_entropy(logits, y, reduction="none") * (y != SILENT)).mean()


def muted(make: Callable[[], nn.Module]) -> nn.Module:
    """A model that does not say the silent class, and never will where no client has it."""
    module = make()
    with torch.no_grad():
        module.get_parameter("head.bias")[SILENT] = -100.0
    return module


@dataclass(frozen=True)
class Case:
    """A federation and how long it runs; the same case gives the same rows every time."""

    name: str
    net: str = "plain"
    sizes: tuple[int, ...] = SIZES
    rounds: int = 2
    seed: int = 0
    participation: float = 1.0
    absent: frozenset[tuple[int, int]] = frozenset()  # (client, round) in which its training fails
    classes: tuple[int | None, ...] = ()  # the only class of each client, where it has only one
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    mute: bool = False  # no model ever says the silent class, and all validation rows are of it
    tests: int = 0  # another number, other test rows
    validation: int | None = 0  # another number, other validation rows; None: none

    def __str__(self) -> str:
        return f"{self.name} ({self.net})"

    @property
    def task(self) -> Task:
        return Task(partial(muted, NETS[self.net]) if self.mute else NETS[self.net], self.loss)

    def spec(self, method: Method) -> Spec:
        only = self.classes or (None,) * len(self.sizes)
        clients = tuple(
            Rows(k, rows(n, 100 + k, only[k]), rows(TESTED, 1000 * (1 + self.tests) + k))
            for k, n in enumerate(self.sizes)
        )
        return Spec(method, self.task, RECIPES[self.net], self.seed, clients)

    def server(self) -> Server:
        infos = [ClientInfo(k, n) for k, n in enumerate(self.sizes)]
        only = SILENT if self.mute else None
        held = None if self.validation is None else rows(VALIDATED, 500 + self.validation, only)
        return Server(self.task, RECIPES[self.net], clients=infos, validation=held)


def rows(count: int, seed: int, only: int | None = None) -> Examples:
    """Images whose label is where they are brightest, under noise; all of one class if told so."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (count,), generator=rng)
    y = y if only is None else torch.full_like(y, only)
    x = 0.8 * torch.rand(count, *SHAPE, generator=rng)
    x[torch.arange(count), :, y] += 0.4
    return Examples(x.contiguous(memory_format=torch.channels_last), y)


def on_both(name: str, **choices: object) -> tuple[Case, ...]:
    return tuple(Case(name, net, **choices) for net in NETS)  # type: ignore[arg-type]


PLAIN = Case("four clients", rounds=6)  # long enough to see a state grow
NORMED = Case("four clients", "batch norm", rounds=3)
PARTIAL = (
    Case("one of four takes part", rounds=5, participation=0.25),
    Case("half takes part", "batch norm", rounds=3, participation=0.5),
)
FAILED = on_both("client 1 fails in round 2", sizes=(9, 6, 5), rounds=3, absent=frozenset({(1, 2)}))
LATE = on_both("client 2 comes in round 3", sizes=(6, 5, 7), rounds=4, absent=frozenset({(2, 1), (2, 2)}))
ONE_ROW = on_both("clients of one row", sizes=(1, 6, 1))
ONE_CLASS = on_both("clients of one class", sizes=(7, 5, 6), classes=(0, 1, 1))
NOTHING = (
    *on_both("client 1 has a zero gradient", sizes=(7, 5, 6), rounds=3, classes=(None, SILENT, 0), loss=deaf),
    *on_both("all gradients are zero", sizes=(5, 6), classes=(SILENT, SILENT), loss=deaf),
    *on_both("no model is ever right on validation rows", sizes=(7, 5, 6), classes=(0, 1, 0), mute=True),
)
NUMBERS = (
    *on_both("one client", sizes=(7,)),
    *on_both("two clients", sizes=(9, 5)),
    *on_both("ten clients", sizes=tuple(range(2, 12))),
)
EVERY = (PLAIN, NORMED, *PARTIAL, *FAILED, *LATE, *ONE_ROW, *ONE_CLASS, *NOTHING, *NUMBERS)
