"""Weights that shift a mean: exact laws on Gaussian data, calibration on any."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedakd.partition import tilt
from fedakd.partition.contract import Features
from fedakd.partition.tilt import Tilt, calibrated, effective_size, inclusion, softmax, squared_shift

GAUSSIAN = np.random.default_rng(0).standard_normal((200_000, 3))
DELTA = np.array([0.6, -0.8, 0.5])


def skewed(rows: int = 20_000, dims: int = 5, seed: int = 0) -> Features:
    """Whitened, but far from Gaussian: exponential in one dimension, two lumps in another."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, dims))
    z[:, 0] = rng.exponential(size=rows)
    z[:, 1] = rng.choice([-1.0, 3.0], size=rows, p=[0.75, 0.25]) + 0.3 * z[:, 1]
    z -= z.mean(axis=0)
    return np.linalg.solve(np.linalg.cholesky(z.T @ z / rows), z.T).T


def drawn(one: Tilt, rows: int = 200_000) -> Features:
    return GAUSSIAN[tilt.draw(one.logs(GAUSSIAN), rows, True, np.random.default_rng(1))]


def test_ratio_draws_have_mean_delta_and_the_old_covariance() -> None:
    z = drawn(Tilt(DELTA))
    assert np.allclose(z.mean(axis=0), DELTA, atol=0.03)
    assert np.allclose(np.cov(z.T), np.eye(3), atol=0.06)


def test_density_draws_have_mean_half_delta_and_half_the_covariance() -> None:
    z = drawn(Tilt(DELTA, density=True))
    assert np.allclose(z.mean(axis=0), DELTA / 2, atol=0.03)
    assert np.allclose(np.cov(z.T), np.eye(3) / 2, atol=0.03)


def test_effective_size_of_the_ratio_shrinks_like_exp_of_minus_c() -> None:
    share = effective_size(softmax(Tilt(DELTA).logs(GAUSSIAN))) / len(GAUSSIAN)
    assert share == pytest.approx(np.exp(-DELTA @ DELTA), rel=0.05)


def test_a_calibrated_shift_of_gaussian_rows_gives_mean_delta_and_keeps_the_covariance() -> None:
    u = tilt.unit(3, np.random.default_rng(5))
    one, _ = calibrated(u, GAUSSIAN, 1.5, least=100)
    assert one is not None
    z = drawn(one)
    assert np.allclose(z.mean(axis=0), math.sqrt(1.5) * u, atol=0.03)
    assert np.allclose(np.cov(z.T), np.eye(3), atol=0.06)


@pytest.mark.parametrize("size", [None, 3000])
def test_slopes_are_how_shares_grow_with_the_logs_of_weights(size: int | None) -> None:
    logs, shares = 0.8 * np.random.default_rng(0).standard_normal(4000), tilt.Shares(size)
    way = np.random.default_rng(1).standard_normal(4000)
    slopes, small = shares.slopes(shares(logs)), 1e-5
    moved = (shares(logs + small * way) - shares(logs - small * way)) / (2 * small)
    assert np.allclose(moved, slopes * (way - slopes @ way / slopes.sum()), atol=1e-7)


@settings(max_examples=25, deadline=None)
@given(c=st.floats(0.05, 4), seed=st.integers(0, 1000))
def test_calibrated_shift_is_what_was_asked_for(c: float, seed: int) -> None:
    z = skewed()
    one, reach = calibrated(tilt.unit(5, np.random.default_rng(seed)), z, c, least=20)
    if one is None:
        assert reach < c
    else:
        weights = softmax(one.logs(z))
        assert squared_shift(weights, z) == pytest.approx(c, rel=1e-4)
        assert effective_size(weights) >= 20 * (1 - 1e-6)


@pytest.mark.parametrize("weigh", [softmax, lambda logs: inclusion(logs, 1000)])
def test_the_reach_told_is_reached(weigh: tilt.Weigh) -> None:
    z, u = skewed(), tilt.unit(5, np.random.default_rng(3))
    nothing, reach = calibrated(u, z, 1e6, 200, weigh)
    assert nothing is None
    one, _ = calibrated(u, z, 0.999 * reach, 200, weigh)
    assert one is not None
    shares = weigh(one.logs(z))
    assert squared_shift(shares, z) == pytest.approx(0.999 * reach, rel=1e-4)
    assert effective_size(shares) >= 200 * (1 - 1e-6)


def test_huge_strengths_neither_overflow_nor_vanish() -> None:
    weights = softmax(Tilt(1e4 * DELTA).logs(GAUSSIAN))
    assert np.isfinite(weights).all()
    assert weights.sum() == pytest.approx(1)


def test_gumbel_draws_have_no_repeats() -> None:
    logs = Tilt(2 * DELTA).logs(GAUSSIAN)
    rows = tilt.draw(logs, 50_000, False, np.random.default_rng(0))
    assert len(np.unique(rows)) == 50_000


@pytest.mark.parametrize("size", [10, 2000, 15_000, 20_000])
def test_inclusion_tells_the_mean_of_draws_without_replacement(size: int) -> None:
    z = skewed()
    logs = Tilt(np.array([0.5, 0.5, 0.5, 0.0, 0.0])).logs(z)
    draws = [
        z[tilt.draw(logs, size, False, np.random.default_rng(seed))].mean(axis=0)
        for seed in range(max(3, 4000 // size))
    ]
    assert np.allclose(inclusion(logs, size) @ z, np.mean(draws, axis=0), atol=0.1)
    assert inclusion(logs, size).max() * size <= 1 + 1e-6


def test_replacement_repeats_in_proportion_to_weight() -> None:
    logs = np.log(np.array([0.1, 0.2, 0.7]))
    rows = tilt.draw(logs, 100_000, True, np.random.default_rng(0))
    assert np.allclose(np.bincount(rows) / 100_000, [0.1, 0.2, 0.7], atol=0.01)


def test_directions_are_unit_and_all_around() -> None:
    rng = np.random.default_rng(0)
    u = np.array([tilt.unit(4, rng) for _ in range(4000)])
    assert np.allclose(np.linalg.norm(u, axis=1), 1)
    assert np.allclose(u.mean(axis=0), 0, atol=0.05)
    assert np.allclose(np.cov(u.T), np.eye(4) / 4, atol=0.03)
