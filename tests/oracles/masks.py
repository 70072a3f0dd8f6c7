"""Magnitude masks (specification 1.5)."""

from __future__ import annotations

import math

import numpy as np

from oracles.linear import Vector, flatten, split


def top(v: Vector, m: int) -> Vector:
    """Exactly the m entries of largest magnitude, ties to the lower index; zero elsewhere."""
    kept = np.zeros_like(v)
    largest = np.argsort(-np.abs(v), kind="stable")[: max(m, 0)]
    kept[largest] = v[largest]
    return kept


def top_share(v: Vector, q: float) -> Vector:
    """Global mode: the floor(q D) largest entries of the whole vector."""
    return top(v, math.floor(q * v.size))


def top_share_by_layer(v: Vector, q: float, features: int) -> Vector:
    """Layer mode: the ceil(q |l|) largest entries of each tensor l, here b and W."""
    b, weight = split(v, features)
    rows = weight.ravel()
    kept = top(rows, math.ceil(q * rows.size)).reshape(weight.shape)
    return flatten(top(b, math.ceil(q * b.size)), kept)
