"""Distances between rows drawn and their pool, against independent references."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import entropy

from fedakd.partition.diagnosis import cosine, label_kl, rows_kl


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
