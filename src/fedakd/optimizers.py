"""Optimisers through torch's functional interface.

torch.optim's classes load the compiler stack at their first step, which costs each worker seconds, and do
more bookkeeping at every step than a small model has arithmetic. The kernels, and so the bits, are the same.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd


class Optimizer(Protocol):
    def step(self) -> None:
        """Moves the parameters along their gradients and forgets these."""


class SGD:
    def __init__(self, parameters: list[Tensor], lr: float, weight_decay: float) -> None:
        self.parameters, self.lr, self.weight_decay = parameters, lr, weight_decay

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
    def __init__(self, parameters: list[Tensor], lr: float, weight_decay: float) -> None:
        self.parameters, self.lr, self.weight_decay = parameters, lr, weight_decay
        self.first = [torch.zeros_like(p) for p in parameters]
        self.second = [torch.zeros_like(p) for p in parameters]
        self.steps = [torch.zeros(()) for _ in parameters]

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


def taken(parameters: list[Tensor]) -> tuple[list[int], list[Tensor]]:
    """Which parameters have a gradient, and the gradients, taken off them."""
    moving = [i for i, parameter in enumerate(parameters) if parameter.grad is not None]
    grads = [parameters[i].grad for i in moving]
    for i in moving:
        parameters[i].grad = None
    return moving, grads  # type: ignore[return-value]


def optimizer(
    kind: Literal["sgd", "adam"], parameters: list[Tensor], lr: float, weight_decay: float
) -> Optimizer:
    return (Adam if kind == "adam" else SGD)(parameters, lr, weight_decay)
