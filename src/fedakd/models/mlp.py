"""Networks for tables, and for images seen as rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers with ReLU between them; without hidden layers it is a linear model."""

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (64, 32)) -> None:
        super().__init__()
        widths = [inputs, *hidden]
        layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
        self.body = nn.Sequential(nn.Flatten(), *layers)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]
