"""Whitened principal components, fitted on some rows and applied to all, linear in rows and in features."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import PartitionError
from fedakd.partition.contract import Features, Rows

Encoder = Callable[[NDArray[Any], Rows], NDArray[Any]]  # all inputs, rows -> features (rows, M)
BLOCK = 4096  # rows turned into float32 at a time
OVERSAMPLE = 10
PASSES = 8  # of subspace iteration; component d errs like (variance d + OVERSAMPLE over variance d)^PASSES
NEGLIGIBLE = 1e-6  # of the largest variance; float32 products cannot tell less from zero
MOST_RAW = 200  # features whitened as they are; beyond it, most of them are noise at most sample sizes
KEPT = 4  # fits remembered


@dataclass(frozen=True, eq=False)
class Whitening:
    """z = (x - mean) @ axes: zero mean and unit covariance on the rows it was fitted to."""

    mean: Features  # (features,)
    axes: Features  # (features, dims), by falling variance

    @property
    def dims(self) -> int:
        return int(self.axes.shape[1])

    def unscaled(self) -> Whitening:
        """The same components with the variance the rows have along them: axes of unit length."""
        return Whitening(self.mean, self.axes / np.linalg.norm(self.axes, axis=0))

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


def remembered(x: NDArray[Any], rows: Rows, dims: int, rng: np.random.Generator) -> Whitening:
    """What `fit` gives on one thread, computed once for equal contents, rows, dims and random stream.

    A sum's last bits depend on the number of threads, and what is remembered must not depend on who asked.
    """
    from threadpoolctl import threadpool_limits

    key = _key(x, rows, dims, rng)
    if key not in FITS:
        with threadpool_limits(1):
            FITS[key] = fit(x, rows, dims, rng)
    FITS.move_to_end(key)
    while len(FITS) > KEPT:
        FITS.popitem(last=False)
    return FITS[key]


def encoded(encoder: Encoder, x: NDArray[Any]) -> NDArray[Any]:
    """What an encoder makes of all rows, if it is one line of features for each."""
    found = np.asarray(encoder(x, np.arange(len(x))))
    if found.ndim != 2 or len(found) != len(x):
        raise PartitionError(
            f"features must give each of {len(x)} rows one line of numbers, got shape {found.shape}"
        )
    return found


def raw_dims(x: NDArray[Any], rows: Rows) -> int:
    """How many features vary, if they are few enough to be whitened as they are."""
    flat = x[rows].reshape(len(rows), -1)
    varying = int(np.sum(flat.min(axis=0) < flat.max(axis=0)))
    if varying > MOST_RAW:
        raise PartitionError(
            f"features=raw whitens at most {MOST_RAW} features, but {varying} vary; "
            "features=pca takes the first dims principal components of them"
        )
    return max(varying, 1)


def scaled(x: NDArray[Any], rows: Rows) -> NDArray[np.float64]:
    """Each feature over its deviation on these rows: one in small units varies as much as another."""
    flat = x.reshape(len(x), -1).astype(np.float64)
    deviation = flat[rows].std(axis=0)
    return np.asarray(flat / np.where(deviation > 0, deviation, 1.0))


def _key(x: NDArray[Any], rows: Rows, dims: int, rng: np.random.Generator) -> str:
    total = hashlib.sha256(repr((x.shape, x.dtype.str, dims, rng.bit_generator.state)).encode())
    total.update(np.ascontiguousarray(x).data)
    total.update(np.ascontiguousarray(rows).data)
    return total.hexdigest()


FITS: OrderedDict[str, Whitening] = OrderedDict()  # the latest last; equal keys give equal bits


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
