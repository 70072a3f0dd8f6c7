"""Looking values up in others."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Values:
    """All values of some tensors, whatever their shapes."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        rows = [part.detach().double().reshape(-1) for part in tensors if part.is_floating_point()]
        self.sorted: Tensor = torch.cat([*rows, torch.tensor([torch.inf], dtype=torch.float64)]).sort().values

    def hold(self, wanted: Tensor) -> Tensor:
        """Which of the values wanted are among these.

        >>> Values([torch.tensor([[0.5, 0.25]])]).hold(torch.tensor([0.25, 0.125]))
        tensor([ True, False])
        """
        wanted = wanted.detach().double().contiguous()
        places = torch.searchsorted(self.sorted, wanted).clamp_max(len(self.sorted) - 1)
        return self.sorted[places] == wanted
