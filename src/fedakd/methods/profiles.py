"""FedAVE's server as a judge: reputations by validation accuracy and by the likeness of loss profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.method import Method
from fedakd.methods.reward import filled, relative, settled
from fedakd.training import Bench
from fedakd.trees import Params, Tree

LARGEST_BATCH = 64  # rows per loss of a profile: the authors'
BATCHES = 25  # losses in the smallest client's profile, where there are rows enough


class Heard(NamedTuple):
    """What a round says of a client."""

    accuracy: float  # of its trained model, on validation rows
    kappa: float
    buffers: Params


@dataclass(frozen=True)
class Profiling(Method):
    alpha: float = 0.95
    beta: float = 2.0
    power: float = 2.0
    profile: bool = True
    quota: Literal["relative", "base"] = "relative"
    base: float = 0.3
    batch: int | None = None  # rows per loss of a profile; None: by the smallest client

    def __post_init__(self) -> None:
        for name, fine, must in (
            ("alpha", 0 <= self.alpha <= 1, "between 0 and 1"),
            ("beta", self.beta > 0, "above 0"),
            ("power", self.power >= 0, "0 or above"),
            ("base", 0 <= self.base <= 1, "between 0 and 1"),
            ("batch", self.batch is None or self.batch >= 1, "at least 1, or none"),
        ):
            if not fine:
                raise PlanError(f"fedave: {name} must be {must}, got {getattr(self, name)}")

    def profile_batch(self, sizes: Tensor) -> int:
        """The rows per loss: as set, or so few that the smallest client has 25 losses, but at most 64."""
        if self.batch is not None:
            return self.batch
        return max(1, min(LARGEST_BATCH, int(sizes.min()) // BATCHES))

    def judged(self, state: Tree, heard: Mapping[int, Heard]) -> tuple[Tensor, Tensor]:
        """Reputations and quotas, [K], after what was heard of those present; the others keep theirs."""
        present = list(heard)
        accuracy = torch.tensor([one.accuracy for one in heard.values()], dtype=torch.float64)
        d = likeness(torch.tensor([one.kappa for one in heard.values()], dtype=torch.float64))
        rho = accuracy * d**self.power
        r, q = state["reputation"].clone(), state["quota"].clone()
        r[present] = rho if state["round"] == 0 else self.alpha * r[present] + (1 - self.alpha) * rho
        r = settled(filled(r, present) if state["round"] == 0 else r)
        q[present] = self.quotas(r)[present] * (d if self.quota == "relative" else 1)
        return r, q

    def quotas(self, reputation: Tensor) -> Tensor:
        """What reputations alone earn."""
        if self.quota == "relative":
            return relative(reputation, self.beta)
        return self.base + (1 - self.base) * torch.tanh(self.beta * reputation)

    def contributions(self, state: Tree) -> Tensor | None:
        """The reputations."""
        reputation: Tensor = state["reputation"]
        return reputation


def profile(bench: Bench, params: Params, data: Examples, batch: int) -> Tensor:
    """The model's mean loss on each batch of the rows, in their order, in evaluation mode."""
    parts = zip(torch.split(bench.logits(params, data), batch), torch.split(data.y, batch), strict=True)
    return torch.stack([bench.task.loss(z, y) for z, y in parts])


def kappa(bench: Bench, params: Params, data: Examples, order: Tensor, other: Tensor, batch: int) -> float:
    """KL(other || the model's profile on the rows in this order); rows beyond `other` are not looked at."""
    return divergence(other, profile(bench, params, data[order[: batch * len(other)]], batch))


def likeness(kappa: Tensor) -> Tensor:
    """d_k, 1 for the client most like the server; where nothing is known of a client it has the median kappa.

    >>> likeness(torch.tensor([0.1, math.nan, 0.4, 0.2]))
    tensor([1.0000, 0.5000, 0.2500, 0.5000])
    """
    known = kappa[~kappa.isnan()]
    kappa = torch.where(kappa.isnan(), known.median() if len(known) else 1.0, kappa)
    return kappa.min() / kappa


def divergence(a: Tensor, b: Tensor) -> float:
    """KL(a || b) of two lists of losses, cut to the shorter and made to sum to 1; at least 1e-8.

    A list of one batch is 1 whatever the loss and says nothing: nan.

    >>> round(divergence(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 2.0, 9.0])), 4)
    0.1308
    """
    if (length := min(len(a), len(b))) < 2:
        return math.nan
    p, q = (losses[:length].double().clamp_min(1e-12) for losses in (a, b))
    p, q = p / p.sum(), q / q.sum()
    return max(float((p * (p / q).log()).sum()), 1e-8)
