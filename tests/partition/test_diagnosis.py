"""Distances between rows drawn and their pool, against independent references."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy
from torch.distributions import MultivariateNormal, kl_divergence

from fedakd.partition.contract import Features
from fedakd.partition.diagnosis import cosine, gaussian_kl, label_kl, rows_kl


def gaussian(dims: int, rng: np.random.Generator) -> tuple[Features, Features]:
    root = rng.standard_normal((dims, dims))
    return rng.standard_normal(dims), root @ root.T + 0.1 * np.eye(dims)


@settings(max_examples=30, deadline=None)
@given(dims=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_gaussian_kl_is_that_of_torch(dims: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = gaussian(dims, rng), gaussian(dims, rng)
    p, q = (MultivariateNormal(torch.tensor(mean), torch.tensor(cov)) for mean, cov in (one, other))
    assert gaussian_kl(*one, *other) == pytest.approx(float(kl_divergence(p, q)), rel=1e-6)


def test_rows_kl_of_a_pure_shift_is_half_its_square() -> None:
    pool = np.random.default_rng(0).standard_normal((100_000, 4))
    pool = np.linalg.solve(np.linalg.cholesky(np.cov(pool.T, bias=True)), pool.T).T
    assert rows_kl(pool + np.array([1.0, 2.0, 0.0, 0.0]), pool) == pytest.approx(2.5)
    assert rows_kl(pool, pool) == pytest.approx(0, abs=1e-9)


def test_rows_that_span_too_little_are_infinitely_far() -> None:
    pool = np.random.default_rng(0).standard_normal((100, 4))
    assert rows_kl(pool[:3], pool) == math.inf
    assert rows_kl(pool[:1], pool) == math.inf
    assert rows_kl(np.repeat(pool[:4], 20, axis=0), pool) == math.inf


def test_label_kl_is_that_of_scipy() -> None:
    drawn, pool = np.array([0, 0, 2, 2, 2]), np.array([0, 1, 1, 2, 2, 2, 3])
    expected = entropy([2, 0, 3, 0], [1, 2, 3, 1])
    assert label_kl(drawn, pool) == pytest.approx(expected)


def test_cosine() -> None:
    assert cosine(np.array([1.0, 0.0]), np.array([2.0, 2.0])) == pytest.approx(math.sqrt(0.5))
    assert math.isnan(cosine(np.zeros(2), np.ones(2)))
