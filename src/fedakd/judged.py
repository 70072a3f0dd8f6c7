"""The rows that clients are judged on and their weights, in a file that is read without the dataset.

It belongs to the results: whoever pairs the outcomes of two models row by row needs to know which rows they
are of. Rows are stored as int32 and weights as float32, arrays that clients share once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedakd import wire
from fedakd.errors import PlanError
from fedakd.federation import Federation
from fedakd.partition.contract import Rows, Weights
from fedakd.trees import Tree

SUFFIX = ".judged.safetensors"


def write_judged(federation: Federation, path: Path) -> None:
    """Write the test rows of every client, and their weights where rows do not count equally."""
    clients = range(federation.clients)
    rows = [federation.test_rows(client) for client in clients]
    distinct = {id(own): own for own in rows}
    places = {key: place for place, key in enumerate(distinct)}
    weights = {str(k): own for k in clients if (own := federation.test_weights(k)) is not None}
    tree: Tree = {
        "rows": {str(places[key]): torch.from_numpy(own.astype(np.int32)) for key, own in distinct.items()},
        "place": torch.tensor([places[id(own)] for own in rows], dtype=torch.int32),
        "weights": {k: torch.from_numpy(own.astype(np.float32)) for k, own in weights.items()},
    }
    wire.save(path, tree)


def keep_judged(federation: Federation, path: Path) -> None:
    """Write the file where there is none; one that lists other rows belongs to results that do not mix."""
    if not path.exists():
        return write_judged(federation, path)
    for client, (rows, weights) in enumerate(read_judged(path)):
        drawn, shares = federation.test_rows(client), federation.test_weights(client)
        same = shares is weights is None or (
            shares is not None and weights is not None and np.allclose(shares, weights, rtol=1e-4, atol=1e-9)
        )
        if not (np.array_equal(drawn, rows) and same):
            raise PlanError(
                f"{path} lists other test rows for client {client} than this machine draws; results beside "
                "it cannot be paired with new ones; compute into another folder"
            )


def read_judged(path: Path) -> list[tuple[Rows, Weights | None]]:
    """Every client's test rows and their weights, which sum to 1; None where all rows count equally."""
    tree = wire.load(path)
    rows = {place: own.numpy().astype(np.int64) for place, own in tree["rows"].items()}
    weights = {k: _normalised(own.numpy()) for k, own in tree["weights"].items()}
    places = tree["place"].tolist()
    return [(rows[str(place)], weights.get(str(k))) for k, place in enumerate(places)]


def _normalised(weights: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Weights:
    exact = weights.astype(np.float64)
    return np.asarray(exact / exact.sum())
