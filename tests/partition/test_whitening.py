"""Whitened principal components against the exact ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedakd.errors import PartitionError
from fedakd.partition import whitening
from fedakd.partition.contract import Features


def cloud(rows: int = 5000, features: int = 40, seed: int = 0) -> Features:
    rng = np.random.default_rng(seed)
    spread = 0.8 ** np.arange(features)
    rotation = np.linalg.qr(rng.standard_normal((features, features)))[0]
    return np.asarray(100 + (rng.standard_normal((rows, features)) * spread) @ rotation)


def fitted(x: NDArray[Any], dims: int, seed: int = 0) -> whitening.Whitening:
    return whitening.fit(x, np.arange(len(x)), dims, np.random.default_rng(seed))


def test_features_have_zero_mean_and_unit_covariance() -> None:
    x = cloud()
    z = fitted(x, 10).features(x)
    assert np.allclose(z.mean(axis=0), 0, atol=1e-4)
    assert np.allclose(z.T @ z / len(z), np.eye(10), atol=1e-4)


def test_axes_are_the_leading_principal_components() -> None:
    x = cloud()
    exact = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2][:10].T
    axes = fitted(x, 10).axes
    cosines = np.abs(np.sum(exact * axes, axis=0)) / np.linalg.norm(axes, axis=0)
    assert cosines.min() > 0.999


def test_only_the_given_rows_are_seen() -> None:
    x = cloud()
    rows = np.arange(0, 3000)
    changed = x.copy()
    changed[3000:] = 1e6
    a, b = (whitening.fit(one, rows, 5, np.random.default_rng(0)) for one in (x, changed))
    assert np.array_equal(a.axes, b.axes)
    assert np.array_equal(a.mean, b.mean)


def test_signs_do_not_depend_on_the_seed() -> None:
    x = cloud()
    one, other = fitted(x, 3, seed=1).features(x), fitted(x, 3, seed=2).features(x)
    assert np.allclose(one, other, atol=1e-2)
    axes = fitted(x, 10).axes
    assert (axes[np.abs(axes).argmax(axis=0), np.arange(10)] > 0).all()


def test_images_of_bytes_are_flattened() -> None:
    x = np.random.default_rng(0).integers(0, 256, (300, 1, 4, 4), dtype=np.uint8)
    whole = fitted(x, 4).features(x)
    flat = fitted(x.reshape(300, 16).astype(np.float64), 4).features(x.reshape(300, 16).astype(np.float64))
    assert np.allclose(whole, flat, atol=1e-3)


def test_dimensions_without_variance_are_left_out() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 3)) @ rng.standard_normal((3, 20))
    assert fitted(x, 10).dims == 3


def test_features_must_vary_and_be_finite() -> None:
    with pytest.raises(PartitionError, match="needs features that vary"):
        fitted(np.ones((50, 4)), 2)
    with pytest.raises(PartitionError, match="needs finite features"):
        fitted(np.full((50, 4), np.nan), 2)
