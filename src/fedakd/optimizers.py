"""Optimisers through torch's functional interface.

torch.optim's classes load the compiler stack at their first step, which costs each worker seconds, and do
more bookkeeping at every step than a small model has arithmetic. The kernels, and so the bits, are the same.
An optimiser's state is a tree by parameter name, so that a client can keep it from one round to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fedakd.trees import Tree


class Optimizer(Protocol):
    def step(self) -> None:
        """Moves the parameters along their gradients and forgets these."""

    def moments(self) -> Tree:
        """A copy of the state by parameter name, from which another optimiser can go on."""


class SGD:
    def __init__(self, named: Mapping[str, Tensor], lr: float, weight_decay: float) -> None:
        self.parameters, self.lr, self.weight_decay = list(named.values()), lr, weight_decay

    def moments(self) -> Tree:
        return {}  # plain SGD remembers nothing

    @torch.no_grad()
    def step(self) -> None:
        moving, grads = taken(self.parameters)
        sgd(
            [self.parameters[i] for i in moving],
            grads,
            [None] * len(moving),
            lr=self.lr,
            weight_decay=self.weight_decay,
            momentum=0.0,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            fused=True,
        )


class Adam:
    def __init__(self, named: Mapping[str, Tensor], lr: float, weight_decay: float, moments: Tree) -> None:
        self.names, self.parameters = list(named), list(named.values())
        self.lr, self.weight_decay = lr, weight_decay
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.steps = [torch.zeros(()) for _ in self.parameters]
        for i, name in enumerate(self.names):
            if name in moments:  # copied into place: zeros_like has the memory layout of the parameter
                self.first[i].copy_(moments[name]["first"])
                self.second[i].copy_(moments[name]["second"])
                self.steps[i].copy_(moments[name]["steps"])

    def moments(self) -> Tree:
        kept = zip(self.names, self.first, self.second, self.steps, strict=True)
        return {
            name: {"first": contiguous(first), "second": contiguous(second), "steps": steps.clone()}
            for name, first, second, steps in kept
        }

    @torch.no_grad()
    def step(self) -> None:
        moving, grads = taken(self.parameters)
        adam(
            [self.parameters[i] for i in moving],
            grads,
            [self.first[i] for i in moving],
            [self.second[i] for i in moving],
            [],
            [self.steps[i] for i in moving],
            lr=self.lr,
            weight_decay=self.weight_decay,
            beta1=0.9,
            beta2=0.999,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
            fused=True,
        )


def contiguous(part: Tensor) -> Tensor:
    return part.clone(memory_format=torch.contiguous_format)


def taken(parameters: list[Tensor]) -> tuple[list[int], list[Tensor]]:
    """Which parameters have a gradient, and the gradients, taken off them."""
    moving = [i for i, parameter in enumerate(parameters) if parameter.grad is not None]
    grads = [parameters[i].grad for i in moving]
    for i in moving:
        parameters[i].grad = None
    return moving, grads  # type: ignore[return-value]


@contextmanager
def training_only(module: nn.Module, named: dict[str, nn.Parameter]) -> Iterator[None]:
    """Gradients for these parameters alone, and none left behind."""
    frozen = [p for n, p in module.named_parameters() if n not in named and p.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
        module.zero_grad()


def optimizer(
    kind: Literal["sgd", "adam"],
    named: Mapping[str, Tensor],
    lr: float,
    weight_decay: float,
    moments: Tree | None = None,
) -> Optimizer:
    """An optimiser of these parameters that goes on from the state of another, if one is given."""
    if kind == "adam":
        return Adam(named, lr, weight_decay, moments or {})
    return SGD(named, lr, weight_decay)
