"""Clusters of clients by the direction of their updates, for pFedCK."""

from __future__ import annotations

import torch
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor
from torch.nn import functional as F


def grouped(rows: Tensor, clusters: int) -> list[int]:
    """The cluster of each row, from 1; rows of zeros have a direction of their own."""
    if len(rows) == 1:
        return [1]
    unit = F.normalize(torch.cat([rows, (rows == 0).all(1, keepdim=True)], dim=1), dim=1, eps=1e-300)
    tree = linkage((torch.pdist(unit).square() / 2).numpy(), "average")  # |u - v|^2 / 2 = 1 - cosine
    return fcluster(tree, tree[-clusters, 2] if clusters < len(rows) else 0.0, "distance").tolist()
