"""CFFL's server as a judge: reputations by validation accuracy, who is expelled, and who gets how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedakd import trees
from fedakd.errors import PlanError
from fedakd.method import Server
from fedakd.methods.reward import Rewarding
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class Judging(Rewarding):
    alpha: float = 5.0
    growing: bool = True
    horizon: float = 20.0  # rounds over which alpha grows to twice its value
    memory: float = 0.8
    sharpen: Literal["after", "before"] = "after"
    expel: float = 1 / 3
    expel_by: Literal["share", "constant"] = "share"
    quota_by: Literal["size", "classes"] = "size"

    def __post_init__(self) -> None:
        for name, fine, must in (
            ("alpha", 0 < self.alpha <= 100, "above 0 and at most 100"),  # sinh(710) overflows
            ("horizon", self.horizon > 0, "above 0"),
            ("memory", 0 <= self.memory < 1, "at least 0 and below 1"),
            ("expel", 0 <= self.expel < 1, "at least 0 and below 1"),
        ):
            if not fine:
                raise PlanError(f"cffl: {name} must be {must}, got {getattr(self, name)}")

    def server_init(self, server: Server, params: Params) -> Tree:
        state = super().server_init(server, params)
        everybody = torch.ones_like(state["sizes"])
        if self.expel_by == "constant" and self.expel * len(everybody) > 1:
            raise PlanError(
                f"cffl: reputations of {len(everybody)} clients average {1 / len(everybody):.3g}, and expel="
                f"{self.expel} expels all who are not above that; set expel_by=share or a lower expel"
            )
        start = everybody * (0.0 if self.sharpen == "after" else 1 / len(everybody))
        own: Tree = {"model": server.parameters(params), "buffers": server.buffers(params)}
        own |= {"reputation": start, "reputable": everybody, "draw": 0.0}
        if self.quota_by == "classes":
            row = server.held_back[torch.tensor([0])]
            own["outputs"] = float(server.logits(params, row).shape[1])
        return {**state, **own, "round": 0.0}

    def scores(self, server: Server, state: Tree, updates: Mapping[int, Tree], heard: Tensor) -> Tensor:
        """The accuracy of w_g plus each upload, with batch-norm statistics of that sum; 0 where none, [K]."""
        scores = torch.zeros_like(state["sizes"])
        for k in heard.nonzero().flatten().tolist():
            uploaded = trees.unpack(updates[k]["uploaded"], like=state["model"])
            params = {**trees.add(state["model"], uploaded), **state["buffers"]}
            scores[k] = server.accuracy(server.update_bn(params, server.held_back), server.held_back)
        return scores

    def judged(self, state: Tree, scores: Tensor, heard: Tensor) -> tuple[Tensor, Tensor]:
        """Reputations and who is reputable after these scores, [K]; where all are 0 nothing is learned."""
        reputable: Tensor = state["reputable"]
        if not scores.sum() > 0:
            return state["reputation"], reputable
        c = self.renewed(state, scores / scores.sum(), heard)
        threshold = self.expel / (float(reputable.sum()) if self.expel_by == "share" else 1.0)
        reputable = reputable * (~heard | (c >= threshold))
        c = c * reputable
        return c / c.sum() if c.any() else c, reputable

    def renewed(self, state: Tree, x: Tensor, heard: Tensor) -> Tensor:
        """Reputations after these shares of all accuracy; those not heard keep theirs until the sinh."""
        c: Tensor = state["reputation"]
        alpha = self.alpha * (1 + min(state["round"] / self.horizon, 1) * self.growing)
        if self.sharpen == "before":
            x = torch.sinh(alpha * x) / torch.sinh(alpha * x).sum()
        mixed = self.memory * c + (1 - self.memory) * x
        others = c if c.any() else mixed[heard].mean()  # the first reputations: the absent are held average
        c = torch.where(heard, mixed, others)
        c = torch.sinh(alpha * c) if self.sharpen == "after" else c
        return c / c.sum()

    def quotas(self, state: Tree, updates: Mapping[int, Tree], c: Tensor, reputable: Tensor) -> Tensor:
        """The share of G for each client present, [K]; before the first reputation all stand alike."""
        standing = c / c.max() if c.any() else reputable
        have: Tensor = state["sizes"]
        if self.quota_by == "size":
            return standing * have / have.max()
        counts = [updates[k]["classes"] if k in updates else 0.0 for k in range(len(have))]
        return standing * have.new_tensor(counts) / float(state["outputs"])
