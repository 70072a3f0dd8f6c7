"""Losses that add a teacher's predictions or a target's parameters to the loss of the task."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedakd.training import Batch, Loss
from fedakd.trees import Params


def distil(
    teacher: Tensor, weight: float, temperature: float, loss: Callable[[Tensor, Tensor], Tensor]
) -> Loss:
    """`loss` plus weight T^2 KL(teacher || student); `teacher`: logits of the rows fitted, computed once."""
    target = F.softmax(teacher / temperature, dim=1)
    entropy = -torch.xlogy(target, target).sum(1)

    def total(module: nn.Module, batch: Batch) -> Tensor:
        z = module(batch.x)
        log_q = F.log_softmax(z / temperature, dim=1)
        divergence = -(target[batch.rows] * log_q).sum(1) - entropy[batch.rows]
        return loss(z, batch.y) + weight * temperature**2 * divergence.mean()

    return total


def pulled(loss: Loss, target: Params, weight: float) -> Loss:
    """`loss` plus weight / 2 times the squared distance of the parameters from a target, buffers left out."""

    def total(module: nn.Module, batch: Batch) -> Tensor:
        squares = torch.stack([(w - target[name]).square().sum() for name, w in module.named_parameters()])
        return loss(module, batch) + weight / 2 * squares.sum()

    return total
