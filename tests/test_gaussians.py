"""Normal distributions and their divergence, against torch's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf
from torch.distributions import MultivariateNormal, kl_divergence

from fedakd.errors import FedakdError
from fedakd.gaussians import Gaussian, kl, moments, shrunk


def some(dims: int, rng: np.random.Generator) -> Gaussian:
    root = rng.standard_normal((dims, dims))
    return Gaussian(rng.standard_normal(dims), root @ root.T + 0.1 * np.eye(dims))


@pytest.mark.parametrize("seed", range(200))
def test_the_divergence_is_that_of_torch(seed):
    rng = np.random.default_rng(seed)
    dims = 1 + seed % 12
    p, q = some(dims, rng), some(dims, rng)
    theirs = [MultivariateNormal(torch.tensor(one.mean), torch.tensor(one.covariance)) for one in (p, q)]
    assert kl(p, q) == pytest.approx(float(kl_divergence(*theirs)), rel=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_it_does_not_change_under_affine_maps(seed):
    rng = np.random.default_rng(seed)
    p, q = some(5, rng), some(5, rng)
    a, b = rng.standard_normal((5, 5)) * 10.0 ** rng.integers(-9, 9), rng.standard_normal(5)
    mapped = [Gaussian(a @ one.mean + b, a @ one.covariance @ a.T) for one in (p, q)]
    assert kl(*mapped) == pytest.approx(kl(p, q), rel=1e-5)


def test_a_flat_second_distribution_is_refused():
    flat = Gaussian(np.zeros(2), np.diag([1.0, 0.0]))
    with pytest.raises(FedakdError, match="varies in every direction"):
        kl(Gaussian(np.zeros(2), np.eye(2)), flat)


@pytest.mark.parametrize("scales", [(1e-17, 1e-17), (1e12, 1e-5)])
def test_units_do_not_matter(scales):
    q = Gaussian(np.zeros(2), np.diag(scales))
    expected = kl(Gaussian(np.zeros(2), 2 * np.eye(2)), Gaussian(np.zeros(2), np.eye(2)))
    assert kl(Gaussian(np.zeros(2), 2 * np.diag(scales)), q) == pytest.approx(expected)


def test_moments_are_the_most_likely():
    x = np.random.default_rng(0).normal(size=(50, 3))
    assert np.allclose(moments(x).mean, x.mean(0))
    assert np.allclose(moments(x).covariance, np.cov(x.T, bias=True))
    assert kl(moments(x), moments(x)) == pytest.approx(0, abs=1e-12)


def test_few_rows_are_infinitely_far_unless_shrunk():
    x = np.random.default_rng(0).normal(size=(4, 6))
    pool = Gaussian(np.zeros(6), np.eye(6))
    assert kl(moments(x), pool) == math.inf
    assert 0 < kl(shrunk(x), pool) < math.inf
    assert np.allclose(shrunk(x).covariance, LedoitWolf().fit(x).covariance_)
