"""pFedCK: a personal and an interactive model teach each other; interactive ones cooperate within clusters.

Zhang, Shi. A Personalized Federated Learning Method Based on Clustering and Knowledge Distillation.
Electronics 2024, 13(5), 857.
Confidence: reconstructed (from the abstract, which gives no formula, number or clustering algorithm).

A client trains P, which never leaves it, and I on the same batches. Each minimises CE + soft T^2 KL(other's
predictions || own) + features mean((own - other's features)^2), the other held fixed; I is sent.
The server clusters clients anew each round by the changes of I since it was sent, and every member of a
cluster gets one and the same I: the mean of the members' models, weighted by their rows.

Deviations:
- All numbers are ours, and so is average linkage on 1 - cosine, which needs no seed and parts no equals.
  Changes of nothing are equals too. Without .body there are no features. Statistics of I are averaged, too.
- An earlier version moved each member's own I by the cluster's mean change. Clusters differ from round to
  round, so models that were once apart never met again: clusters share one model now.
- The optimiser of P is kept over the rounds, as that of Standalone is; that of I is made anew every round.
- A client that misses a round keeps the I it was to get, however the others are clustered meanwhile.
- P and I are equal until somebody shares the client's cluster; as I tells P then, `private` promises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedakd import trees
from fedakd.errors import PlanError
from fedakd.method import Client, Method, Server
from fedakd.methods.clustering import grouped
from fedakd.training import Batch
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class PFedCK(Method):
    soft: float = 1.0
    features: float = 1.0
    temperature: float = 1.0
    clusters: int = 3

    title = "pFedCK"
    summary = "personal and interactive models teach each other; the latter cooperate within clusters"
    citation = "Zhang and Shi, Electronics 2024"
    confidence = "reconstructed"

    def __post_init__(self) -> None:
        if not (self.soft >= 0 and self.features >= 0 and self.temperature > 0 and self.clusters > 0):
            raise PlanError(f"pfedck: soft and features must be 0 or above, the rest above 0, got {self}")

    def server_init(self, server: Server, params: Params) -> Tree:
        return {"models": {"0": params}, "cluster": torch.zeros_like(server.sizes), "sizes": server.sizes}

    def send(self, state: Tree, client: int) -> Tree:
        return {"shared": state["models"][str(int(state["cluster"][client]))]}

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        if not updates:
            return state
        changes = torch.stack([self.change(server, state, k, update) for k, update in updates.items()])
        label = dict(zip(updates, grouped(changes, self.clusters), strict=True))
        members = {c: [k for k in updates if label[k] == c] for c in label.values()}
        models = {
            str(c): trees.mean((updates[k]["shared"] for k in clients), state["sizes"][clients].tolist())
            for c, clients in members.items()
        }
        absent = {k: int(number) for k, number in enumerate(state["cluster"]) if k not in updates}
        free = len(models) + 1  # the first number that no cluster has
        models |= {str(free + old): state["models"][str(old)] for old in absent.values()}
        label |= {k: free + old for k, old in absent.items()}
        cluster = torch.tensor([label[client.id] for client in server.clients], dtype=torch.float64)
        return {**state, "models": models, "cluster": cluster}

    def change(self, server: Server, state: Tree, client: int, update: Tree) -> Tensor:
        """How far the client's training moved the parameters it was sent, in one row."""
        after, before = update["shared"], self.send(state, client)["shared"]
        return trees.vector(trees.sub(server.parameters(after), before)).double()

    def client_init(self, client: Client, params: Params) -> Tree:
        return {"personal": params, "moments": {}}

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        models = self.models(state)
        start = {f"{view}.{name}": part for view, own in models.items() for name, part in own.items()}
        moments = {f"personal.{name}": part for name, part in state["moments"].items()}
        pair = nn.ModuleDict({view: deepcopy(client.module) for view in models})
        loss = partial(self.mutual, client)
        after, moments = client.fit_from(start, moments, client.data, loss=loss, module=pair)
        p, i = ({name: after[f"{view}.{name}"] for name in own} for view, own in models.items())
        kept = {name: moments[full] for name in p if (full := f"personal.{name}") in moments}
        return {"personal": p, "moments": kept}, {"shared": i, "n": float(client.n)}

    def mutual(self, client: Client, pair: nn.Module, batch: Batch) -> Tensor:
        client.gradients += len(batch.y)  # fit counts a row once, and here two models learn from it
        with torch.random.fork_rng(devices=[]):  # dropout: P draws what it would alone, and I the same
            shared = seen(pair.get_submodule("shared"), batch)
        z, *features = map(torch.stack, zip(seen(pair.get_submodule("personal"), batch), shared, strict=True))
        log_p = F.log_softmax(z / self.temperature, dim=-1)  # (2, rows, classes)
        divergence = F.kl_div(log_p, log_p.detach().flip(0), reduction="sum", log_target=True) / len(batch.y)
        gap = 2 * sum(F.mse_loss(f, f.detach().flip(0)) for f in features)  # 2: the mean runs over both
        ce = client.task.loss(z[0], batch.y) + client.task.loss(z[1], batch.y)
        return ce + self.soft * self.temperature**2 * divergence + self.features * gap

    def models(self, state: Tree) -> dict[str, Params]:
        return {"personal": state["personal"], "shared": state["shared"]}


def seen(module: nn.Module, batch: Batch) -> list[Tensor]:
    """Logits, and the features they are made from, if the model has a .body."""
    features: list[Tensor] = []
    body = getattr(module, "body", nn.Identity())
    with body.register_forward_hook(lambda _self, _in, out: features.append(out)):
        return [module(batch.x), *features]
