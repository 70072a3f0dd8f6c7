"""Rows a model can be fitted to or judged on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Examples:
    """Inputs and labels of the same length; inputs are one tensor, or several by name."""

    x: Tensor | dict[str, Tensor]
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Tensor) -> Examples:
        return Examples(take(self.x, rows), self.y[rows])


def take(x: Tensor | dict[str, Tensor], rows: Tensor) -> Tensor | dict[str, Tensor]:
    """The given rows, images kept in the memory format they are stored in."""
    if isinstance(x, dict):
        return {name: part[rows] for name, part in x.items()}
    if x.ndim == 4:  # gathering through the (N, H, W, C) view keeps channels_last
        return x.permute(0, 2, 3, 1)[rows].permute(0, 3, 1, 2)
    return x[rows]


def images(pixels: Tensor) -> Tensor:
    """Images (N, C, H, W) of bytes as floats in [0, 1], laid out channels_last."""
    return pixels.to(torch.float32, copy=True).div_(255).contiguous(memory_format=torch.channels_last)
