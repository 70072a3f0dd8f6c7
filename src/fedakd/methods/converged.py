"""Converged: every client trains alone for as long as that helps. The second reference for gains.

Confidence: official.

Standalone has the epochs of the federated methods; Converged has as many as a client alone would really take.
Everything happens in a client's first round:
  1. it divides its own training rows into `folds` parts, copies of a row in one part, and trains a model for
     each part on the other parts, epoch by epoch with one optimiser;
  2. after each epoch every row is classified by the model that has not seen it; the score is the share of
     rows classified correctly, the mean of the last five epochs;
  3. training stops when `patience` epochs in a row have not raised the score, or after `limit` epochs; e is
     the last epoch whose score is within one standard error of the highest;
  4. it trains again from the initial parameters, on all its rows and for e epochs, with one optimiser.
Later rounds change nothing and compute no gradients. An epoch is one pass over the rows, whatever the recipe
says of epochs in a round.

Deviations:
- There is no source: this is cross-validated early stopping, without test or validation rows. Of epochs that
  are not told apart it takes the last. An earlier rule stopped at the lowest loss on 15 % of the rows: of
  eight clients with 170 to 420 rows (FashionMNIST) seven stopped after 4 to 16 epochs and scored less than
  with 20.
- A client whose rows are all copies of one cannot hold any out, and trains for `patience` epochs.
- `limited` is 1 where the limit ended step 3, so that more epochs might have helped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.method import Client, Method, Server
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class Converged(Method):
    folds: int = 3
    patience: int = 20  # epochs without a higher score that end the search
    limit: int = 200  # epochs

    summary = "every client trains alone until rows it holds out gain nothing more; the second reference"
    citation = "baseline"

    def __post_init__(self) -> None:
        if self.folds < 2:
            raise PlanError(f"converged: folds must be 2 or above, got {self.folds}")
        if min(self.patience, self.limit) < 1:
            raise PlanError(
                f"converged: patience and limit must be 1 or above, got {self.patience} and {self.limit}"
            )

    def server_init(self, server: Server, params: Params) -> Tree:
        nothing = torch.zeros_like(server.sizes)  # 0 epochs: has not trained yet
        return {"epochs": nothing, "limited": nothing.clone()}

    def send(self, state: Tree, client: int) -> Tree:
        return {}

    def server_update(self, server: Server, state: Tree, updates: Mapping[int, Tree]) -> Tree:
        after = {name: state[name].clone() for name in ("epochs", "limited")}
        for client, update in updates.items():
            for name, values in after.items():
                values[client] = update[name]
        return after

    def client_init(self, client: Client, params: Params) -> Tree:
        return {"model": params, "epochs": 0.0, "limited": 0.0}

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        kept = state if state["epochs"] else self.trained(client, state["model"])
        return kept, {"epochs": kept["epochs"], "limited": kept["limited"]}

    def trained(self, client: Client, start: Params) -> Tree:
        """The model after the number of epochs that held-out rows call for."""
        alike = not copies(client.data).any()  # all have the first number
        epochs, limited = (self.patience, False) if alike else self.searched(client, start)
        model = client.fit(start, client.data, recipe=replace(client.recipe, epochs=epochs))
        return {"model": model, "epochs": float(epochs), "limited": float(limited)}

    def searched(self, client: Client, start: Params) -> tuple[int, bool]:
        """The number of epochs that held-out rows call for, and whether the limit ended the search."""
        parts = self.parted(client)
        models: list[tuple[Params, Tree]] = [(start, {})] * len(parts)
        shares: list[float] = []
        while len(shares) < self.limit and not self.over(shares):
            recipe, purpose = replace(client.recipe, epochs=1), f"epoch {len(shares) + 1}"
            models = [
                client.fit_from(*model, rest, recipe=recipe, purpose=purpose)
                for model, (rest, _) in zip(models, parts, strict=True)
            ]
            right = [correct(client, w, *part) for (w, _), part in zip(models, parts, strict=True)]
            shares.append(sum(right) / client.n)
        return chosen(shares, client.n), not self.over(shares)

    def over(self, shares: list[float]) -> bool:
        scores = smoothed(shares)
        return bool(len(scores)) and len(scores) - 1 - int(scores.argmax()) >= self.patience

    def parted(self, client: Client) -> list[tuple[Examples, Examples]]:
        """For each fold the rows to train on and the rows held out; copies of a row are in one fold."""
        group = copies(client.data)
        order = torch.randperm(int(group.max()) + 1, generator=client.generator("folds"))
        folds = min(self.folds, len(order))
        fold = (order % folds)[group]
        both = ((fold != number, fold == number) for number in range(folds))
        return [(client.data[rest], client.data[held]) for rest, held in both if rest.any()]

    def remarks(self, state: Tree) -> list[str]:
        limited = state["limited"].nonzero().flatten().tolist()
        clients = ", ".join(map(str, limited))
        still = (
            f"had not converged after {self.limit} epochs: clients {clients}; a larger limit may help them"
        )
        return [still] if limited else []

    def models(self, state: Tree) -> dict[str, Params]:
        return {"personal": state["model"]}


def correct(client: Client, params: Params, rest: Examples, held: Examples) -> int:
    """How many held-out rows a model gets right, judged as every model that is a client's own."""
    logits = client.logits(client.update_bn(params, rest), held)
    return int((logits.argmax(1) == held.y).sum())


def smoothed(shares: list[float], window: int = 5) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The mean of the last five values, of fewer at the start.

    >>> smoothed([0.0, 1.0, 2.0], window=2).tolist()
    [0.0, 0.5, 1.5]
    """
    return np.array([np.mean(shares[max(0, end - window) : end]) for end in range(1, len(shares) + 1)])


def chosen(shares: list[float], rows: int) -> int:
    """The last epoch whose score is within one standard error of the highest."""
    scores = smoothed(shares)
    best = scores.max()
    error = np.sqrt(best * (1 - best) / rows)
    return int(np.flatnonzero(scores >= best - error)[-1]) + 1


def copies(data: Examples) -> Tensor:
    """A number for each row, the same for rows with the same inputs."""
    parts = data.x.values() if isinstance(data.x, dict) else [data.x]
    flat = torch.cat([part.reshape(len(part), -1).double() for part in parts], 1)
    return torch.from_numpy(np.unique(flat.numpy(), axis=0, return_inverse=True)[1].reshape(-1))
