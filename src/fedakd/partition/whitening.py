"""Whitened principal components, fitted on some rows and applied to all, linear in rows and in features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import PartitionError
from fedakd.partition.contract import Features, Rows

BLOCK = 4096  # rows turned into float32 at a time
OVERSAMPLE = 10
PASSES = 8  # of subspace iteration; component d errs like (variance d + OVERSAMPLE over variance d)^PASSES
NEGLIGIBLE = 1e-6  # of the largest variance; float32 products cannot tell less from zero


@dataclass(frozen=True, eq=False)
class Whitening:
    """z = (x - mean) @ axes: zero mean and unit covariance on the rows it was fitted to."""

    mean: Features  # (features,)
    axes: Features  # (features, dims), by falling variance

    @property
    def dims(self) -> int:
        return int(self.axes.shape[1])

    def features(self, x: NDArray[Any], rows: Rows | None = None) -> Features:
        """Whitened features (rows, dims) of the given rows, or of all."""
        rows = np.arange(len(x)) if rows is None else rows
        axes = self.axes.astype(np.float32)
        return np.concatenate([block @ axes for block in _centred(x, rows, self.mean)]).astype(np.float64)


def fit(x: NDArray[Any], rows: Rows, dims: int, rng: np.random.Generator) -> Whitening:
    """The first `dims` principal components of these rows, or as many as have any variance."""
    mean = _mean(x, rows)
    basis = _leading_subspace(x, rows, mean, min(dims + OVERSAMPLE, len(mean)), rng)
    projected = Whitening(mean, basis).features(x, rows)
    variances, rotation = np.linalg.eigh(projected.T @ projected / len(rows))
    variances, rotation = variances[::-1][:dims], rotation[:, ::-1][:, :dims]
    if variances[0] <= 0:
        raise PartitionError(
            "a covariate shift needs features that vary; all rows of the train pool are equal"
        )
    usable = variances > NEGLIGIBLE * variances[0]
    axes = basis @ rotation[:, usable]
    return Whitening(mean, _same_sign(axes) / np.sqrt(variances[usable]))


def _same_sign(axes: Features) -> Features:
    """An axis and its opposite are both principal; the one whose largest loading is positive is taken."""
    largest = np.abs(axes).argmax(axis=0)
    return np.asarray(axes * np.sign(axes[largest, np.arange(axes.shape[1])]))


def _leading_subspace(
    x: NDArray[Any], rows: Rows, mean: Features, width: int, rng: np.random.Generator
) -> Features:
    """An orthonormal basis (features, width) of the directions of largest variance, by subspace iteration."""
    basis = np.linalg.qr(rng.standard_normal((len(mean), width)))[0]
    for _ in range(PASSES):
        small = basis.astype(np.float32)
        product = np.zeros_like(basis)
        for block in _centred(x, rows, mean):
            product += block.T @ (block @ small)
        basis = np.linalg.qr(product)[0]
    return basis


def _mean(x: NDArray[Any], rows: Rows) -> Features:
    zero = np.zeros(int(np.prod(x.shape[1:], dtype=int)))
    total = sum((block.sum(axis=0, dtype=np.float64) for block in _centred(x, rows, zero)), start=zero)
    mean = total / len(rows)
    if not np.isfinite(mean).all():
        raise PartitionError("a covariate shift needs finite features; the train pool holds nan or inf")
    return np.asarray(mean)


def _centred(x: NDArray[Any], rows: Rows, mean: Features) -> Iterator[NDArray[np.float32]]:
    """Blocks of rows (block, features); wide types are centred before they lose digits."""
    exact = np.float64 if x.dtype.itemsize > 4 else np.float32
    for start in range(0, len(rows), BLOCK):
        block = x[rows[start : start + BLOCK]]
        centred = block.reshape(len(block), -1).astype(exact) - mean.astype(exact)
        yield centred.astype(np.float32, copy=False)
