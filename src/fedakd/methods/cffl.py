"""CFFL: reputation by validation accuracy decides how much of the others' updates a client may download.

Lyu, Xu, Wang, Yu. Collaborative Fairness in Federated Learning. Federated Learning, LNCS 12500, 2020.
Confidence: official.

One round; client k owns w_k, the server holds w_g, reputations c (0 at first) and the reputable clients R:
  1. the client trains w_k, clips the change, keeps w_k + change and sends S_k, the change's largest entries;
  2. a_k = accuracy of w_g + S_k on the validation rows, x_k = a_k / sum of a, over R;
  3. c_k = sinh(alpha_t (memory c_k + (1 - memory) x_k)), normalised; below a threshold k leaves R, c_k = 0;
  4. G = sum of S_k over R (mean: weighted by n_k / sum of n), w_g = w_g + G;
  5. A_k = the largest floor(c_k / max c * n_k / max n * D) entries of G;
  6. for k in R w_k = w_k + A_k - rho_k S_k, rho_k = 1 (mean: n_k / max n): its own upload comes back in G.
sharpen="before": c_k = memory c_k + (1 - memory) sinh(alpha x_k) / sum, from 1/K.
quota_by="classes": step 5 has the share of the model's classes that k has for n_k / max n.

Deviations:
- Uploads are scored with the client's running statistics, sent along; the authors' nets have no batch norm.
- The authors score a client's own model where everything is uploaded; we always score w_g + S_k.
- Entries that the clamp makes equal are ranked by their size before it; the authors send them all.
- alpha_t = alpha (1 + t / T); T is `horizon` here, as a method does not know how long a run is.
- The authors clamp at 0.001 for CIFAR10 and expel below 1/6 or 2/3 of a share in other settings.
- Left out: pre-training, learning-rate decay, random downloads. No quota is nothing (theirs: everything).
- preset released: that code's clients restart from w_g, get all of G and their own part twice, whatever their
  reputation. We copy none of that.
- All clients take part with the authors. Here the absent are neither scored nor expelled and keep c_k up to
  the common sinh and normalisation; one who misses the first round is given the mean of those present: with
  0 it would be expelled on arrival. Where all a_k are 0 nothing is learned and nobody leaves R; before the
  first reputation all count alike in step 5.
- A constant threshold above the mean reputation (0.05 with more than 20 clients) is refused.
The server's half of steps 2, 3 and 5 is in reputation.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedakd import trees
from fedakd.errors import PlanError
from fedakd.method import Client, Server
from fedakd.methods.reputation import Judging
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class CFFL(Judging):
    upload: float = 0.1
    clip: float = 0.01
    clip_by: Literal["value", "norm"] = "value"
    aggregate: Literal["sum", "mean"] = "sum"

    summary = "validation accuracy earns reputation, and reputation a share of the others' updates"
    citation = "Lyu et al., LNCS 12500, 2020"
    needs_validation = True
    presets: ClassVar = {
        name: {
            **{"upload": 0.5, "clip": 5.0, "clip_by": "norm", "alpha": 1.0, "growing": False, "memory": 0.5},
            **{"sharpen": "before", "expel": 0.05, "expel_by": "constant", "aggregate": "mean"},
        }
        for name in ("paper", "released")
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.upload <= 1:
            raise PlanError(f"cffl: upload must be above 0 and at most 1, got {self.upload}")
        if not self.clip > 0:
            raise PlanError(f"cffl: clip must be above 0, got {self.clip}")

    def reward(self, state: Tree, client: int) -> Tree:
        if state["round"] == 0 or not state["reputable"][client]:
            return {}
        earned = trees.top(state["gradient"], float(state["quota"][client]))
        rho = 1.0 if self.aggregate == "sum" else float(state["sizes"][client] / state["sizes"].max())
        return {"reward": trees.pack(earned), "share": rho}

    def receive(self, kept: Tree, message: Tree) -> Tree:
        if not message:
            return kept
        w_k: Params = kept["model"]
        earned, own = (trees.unpack(part, like=w_k) for part in (message["reward"], kept["uploaded"]))
        return {**kept, "model": trees.add(w_k, trees.add(earned, own, by=-message["share"]))}

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        raw, buffers = self.fitted(client, state)
        delta, chosen = self.clipped(raw), trees.top(raw, self.upload)
        # what a clamp makes equal is told apart by its size before, or the first tensors would take it all
        uploaded = {name: torch.where(part != 0, delta[name], 0.0) for name, part in chosen.items()}
        sent = {"uploaded": trees.pack(uploaded), "buffers": buffers}
        classes = {"classes": float(len(set(client.data.y.tolist())))} if self.quota_by == "classes" else {}
        return {"model": trees.add(state["model"], delta), **sent}, {**sent, **classes}

    def clipped(self, delta: Params) -> Params:
        if self.clip_by == "norm":
            return trees.clip(delta, self.clip)
        return {name: part.clamp(-self.clip, self.clip) for name, part in delta.items()}

    def learned(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        heard = torch.tensor([k in updates and bool(r) for k, r in enumerate(state["reputable"])])
        c, reputable = self.judged(state, self.scores(server, state, updates, heard), heard)
        gradient = self.aggregated(state, updates, heard & reputable.bool())
        quota = self.quotas(state, updates, c, reputable)
        after = {"reputation": c, "reputable": reputable, "quota": quota, "gradient": gradient}
        return {**after, "model": trees.add(state["model"], gradient), "round": state["round"] + 1}

    def aggregated(self, state: Tree, updates: Mapping[int, Tree], chosen: Tensor) -> Params:
        """G, of the uploads of the clients chosen."""
        sizes, clients = state["sizes"], chosen.nonzero().flatten().tolist()
        w = sizes[chosen] / sizes.sum() if self.aggregate == "mean" else chosen[chosen].double()
        if not clients:
            return trees.zeros(state["model"])
        uploads = (trees.unpack(updates[k]["uploaded"], like=state["model"]) for k in clients)
        return trees.scale(trees.mean(uploads, w.tolist()), float(w.sum()))
