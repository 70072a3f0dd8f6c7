"""FedAKD: distil global to local on all rows, then local to global on the rows the local model gets right.

Yu, Wang, Wang, Lin, Liu, Yee, Ma. Towards Collaborative Fairness in Federated Learning Under Imbalanced
Covariate Shift. KDD 2025.
Confidence: official.

One round at client k, which holds w_k and receives w_g:
  1. global to local: w_k minimises CE + alpha KD(teacher w_g) on all its rows;
  2. selection: I_k = the rows w_k classifies correctly, in evaluation mode;
  3. local to global: a copy of w_g minimises CE + beta KD(teacher w_k) on I_k, and is sent.
The server averages the copies by |D_k|; w_k never leaves the client.
Deviations:
- The optimiser of w_k is kept over the rounds, as that of Standalone is: nothing but its own training changes
  w_k, and without distillation it is Standalone's model. That of the copy is made anew every round.
- The paper judges "the clients after federation", its code judges w_g: both views are reported.
- local_update="overwrite" (ablation Single-Dist) selects all rows in its first round. A class that an
  untrained w_g never predicts could otherwise enter no I_k, ever.
- order="released" is the published code's: no step 1 in the first round, where the teacher is untrained. The
  published code runs step 1 after the aggregation, we at the start of the next round: w_g is the same, and
  the personal view is judged before that step instead of after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fedakd.distillation import distil
from fedakd.errors import PlanError
from fedakd.method import Client
from fedakd.methods.fedavg import FedAvg
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class FedAKD(FedAvg):
    alpha: float = 1.0
    beta: float = 1.0
    temperature: float = 1.0
    select: Literal["correct", "all"] = "correct"
    local_update: Literal["distil", "overwrite"] = "distil"
    weigh_by: Literal["size", "uniform", "correct"] = "size"  # type: ignore[assignment]
    order: Literal["paper", "released"] = "paper"

    summary = "two distillations a round; only rows the local model gets right teach the global one"
    citation = "Yu et al., KDD 2025"
    presets: ClassVar = {"released": {"order": "released"}}

    def __post_init__(self) -> None:
        if not min(self.alpha, self.beta) >= 0:
            raise PlanError(f"fedakd: alpha and beta must be 0 or above, got {self.alpha} and {self.beta}")
        if not self.temperature > 0:
            raise PlanError(f"fedakd: temperature must be above 0, got {self.temperature}")

    @property
    def private(self) -> tuple[str, ...]:
        return () if self.local_update == "overwrite" else ("local", "moments")

    def client_init(self, client: Client, params: Params) -> Tree:
        return {"local": params, "moments": {}, "rounds": 0.0}

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        first = state["rounds"] == 0
        w_k, moments = self.taught(client, state, first)
        rows, z_k = self.selected(client, w_k, first)
        w_gk = self.teaching(client, state["model"], rows, z_k)
        personal = w_gk if self.local_update == "overwrite" else w_k
        keep = {"local": personal, "moments": moments, "rounds": state["rounds"] + 1}
        correct = client.n if rows is None else len(rows)
        return keep, {"model": w_gk, "n": float(client.n), "correct": float(correct)}

    def taught(self, client: Client, state: Tree, first: bool) -> tuple[Params, Tree]:
        """Step 1: the local model after the global one taught it, and the state of its optimiser."""
        w_g: Params = state["model"]
        w_k, moments = state["local"], state["moments"]
        if self.local_update == "overwrite":
            return w_g, {}
        if self.order == "released" and first:
            return w_k, moments
        if self.alpha == 0:
            return client.fit_from(w_k, moments, client.data)
        teacher = client.logits(w_g, client.data)  # (n, classes)
        loss = distil(teacher, self.alpha, self.temperature, client.task.loss)
        return client.fit_from(w_k, moments, client.data, loss=loss)

    def selected(self, client: Client, w_k: Params, first: bool) -> tuple[Tensor | None, Tensor | None]:
        """Step 2: the rows of I_k (None: all) and the local model's logits on them, where needed."""
        everything = self.select == "all" or (first and self.starts_with_all)
        if everything and self.beta == 0:
            return None, None
        z_k = client.logits(w_k, client.data)
        if everything:
            return None, z_k
        rows = (z_k.argmax(1) == client.data.y).nonzero().squeeze(1)
        return rows, z_k[rows]

    @property
    def starts_with_all(self) -> bool:
        return self.local_update == "overwrite" or self.order == "released"

    def teaching(self, client: Client, w_g: Params, rows: Tensor | None, z_k: Tensor | None) -> Params:
        """Step 3: the copy of the global model after the local one taught it."""
        if rows is not None and len(rows) == 0:
            return w_g
        data = client.data if rows is None else client.data[rows]
        if self.beta == 0 or z_k is None:
            return client.fit(w_g, data)
        return client.fit(w_g, data, loss=distil(z_k, self.beta, self.temperature, client.task.loss))

    def weights(self, state: Tree, updates: Mapping[int, Tree]) -> list[float]:
        if self.weigh_by == "correct":
            return [update["correct"] for update in updates.values()]
        return super().weights(state, updates)

    def models(self, state: Tree) -> dict[str, Params]:
        return {"personal": state["local"], "global": state["model"]}
