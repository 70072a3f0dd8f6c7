"""FedAvg and FedAKD as most papers' code writes them: the yardstick of `rounds.py`.

DataLoaders over contiguous tensors, layers one by one, torch.optim as it comes, the teacher evaluated for
every batch, a client's whole set in one forward pass for the selection, all threads in one process.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset

Weights = dict[str, Tensor]


def network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 10)),
    )


class PlainLoop:
    def __init__(self, clients: list[TensorDataset], batch_size: int, lr: float) -> None:
        self.clients, self.batch_size, self.lr = clients, batch_size, lr
        self.server = network()
        self.local = [copy.deepcopy(self.server) for _ in clients]

    def fedavg_round(self) -> None:
        sent = []
        for data in self.clients:
            model = copy.deepcopy(self.server)
            self._fit(model, data, None)
            sent.append(model)
        self._aggregate(sent)

    def fedakd_round(self) -> None:
        sent = []
        for data, local in zip(self.clients, self.local, strict=True):
            copied = copy.deepcopy(self.server)
            self._fit(local, data, copied)
            right = self._right(local, data)
            if len(right):
                self._fit(copied, Subset(data, right.tolist()), local)
            sent.append(copied)
        self._aggregate(sent)

    def _fit(
        self, student: nn.Module, data: TensorDataset | Subset[tuple[Tensor, ...]], teacher: nn.Module | None
    ) -> None:
        optimizer = torch.optim.Adam(student.parameters(), lr=self.lr)
        student.train()
        if teacher is not None:
            teacher.eval()
        for x, y in DataLoader(data, self.batch_size, shuffle=True):
            optimizer.zero_grad()
            z = student(x)
            loss = F.cross_entropy(z, y)
            if teacher is not None:
                with torch.no_grad():
                    target = F.softmax(teacher(x), dim=1)
                loss = loss + F.kl_div(F.log_softmax(z, dim=1), target, reduction="batchmean")
            loss.backward()
            optimizer.step()

    @torch.no_grad()
    def _right(self, model: nn.Module, data: TensorDataset) -> Tensor:
        model.eval()
        x, y = data.tensors
        return (model(x).argmax(1) == y).nonzero().squeeze(1)

    def _aggregate(self, sent: list[nn.Module]) -> None:
        total = sum(len(data) for data in self.clients)
        shares = [len(data) / total for data in self.clients]
        states = [model.state_dict() for model in sent]
        mean = {
            name: sum(share * state[name] for share, state in zip(shares, states, strict=True))
            for name, value in states[0].items()
            if value.is_floating_point()
        }
        self.server.load_state_dict(mean, strict=False)
