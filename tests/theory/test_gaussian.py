"""Theorem 2 against the exact divergence: what is printed, what is right, and what sampling adds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import wishart

from fedakd.errors import FedakdError
from fedakd.gaussians import Array, Gaussian, kl, moments
from fedakd.theory.gaussian import (
    compared,
    direction,
    expansion,
    perturbed,
    sampling,
    sampling_exact,
    simulated,
    some,
    theorem2,
)

SIZES = np.geomspace(0.02, 0.2, 6)


def slope(errors: Array) -> float:
    return float(np.polyfit(np.log(SIZES), np.log(np.abs(errors)), 1)[0])


def errors(formula, dims: int, seed: int) -> Array:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    base, along = some(dims, rng), direction(dims, rng)
    pairs = [perturbed(base, along, size) for size in SIZES]
    return np.array([formula(p, base) - kl(p, base) for p in pairs])


@pytest.mark.parametrize("dims", [1, 2, 5, 20])
@pytest.mark.parametrize("seed", range(5))
def test_the_expansion_errs_by_the_fourth_power_of_the_perturbation(dims, seed):
    assert slope(errors(expansion, dims, seed)) >= 3.7


@pytest.mark.parametrize("order", [2, 3, 4, 5])
def test_the_expansion_errs_by_the_power_after_its_order(order):
    found = slope(errors(lambda p, q: expansion(p, q, order=order), 4, 0))
    assert found == pytest.approx(order + 1, abs=0.3)


@pytest.mark.parametrize("dims", [2, 5, 20])
@pytest.mark.parametrize("seed", range(5))
def test_theorem_2_errs_by_less_than_the_third_power(dims, seed):
    assert slope(errors(theorem2, dims, seed)) < 3


def test_an_order_below_two_says_nothing():
    one = some(2, np.random.default_rng(0))
    with pytest.raises(FedakdError, match="order 2, got order 1"):
        expansion(one, one, order=1)


# In each of these examples only one of the three deviations is at work, and its size is known.


def test_the_norm_is_wrong_unless_the_covariance_is_the_identity():
    """Twins whose dS S^-1 has the eigenvalues +t and -t: no third order, no mean."""
    t = 0.1
    for scale in (1.0, 3.0):
        q = Gaussian(np.zeros(2), scale * np.eye(2))
        p = Gaussian(np.zeros(2), scale * np.diag([1 + t, 1 - t]))
        assert expansion(p, q) == pytest.approx(t**2 / 2)
        assert theorem2(p, q) == pytest.approx(t**2 / 2 / scale**2)
    assert theorem2(p, q) < kl(p, q) / 8


def test_the_cubic_term_is_three_times_too_large():
    t = 0.1
    q, p = Gaussian(np.zeros(3), np.eye(3)), Gaussian(np.zeros(3), (1 + t) * np.eye(3))
    assert theorem2(p, q) - expansion(p, q) == pytest.approx(-3 * t**3 * (1 / 2 - 1 / 6))
    assert abs(theorem2(p, q) - kl(p, q)) > 5 * abs(expansion(p, q) - kl(p, q))


def test_the_mean_term_has_a_factor_too_many():
    """Twins again, moved along the first: the only difference is in the mean's term, of third order."""
    t, move = 0.1, np.array([0.5, 0.0])
    q, p = Gaussian(np.zeros(2), np.eye(2)), Gaussian(move, np.diag([1 + t, 1 - t]))
    assert theorem2(p, q) - expansion(p, q) == pytest.approx(-t * move @ move / 2)
    mean_alone = Gaussian(move, q.covariance)
    assert kl(p, q) - kl(Gaussian(q.mean, p.covariance), q) == pytest.approx(kl(mean_alone, q))


@pytest.mark.parametrize("seed", range(5))
def test_the_expansion_does_not_mind_affine_maps_and_theorem_2_does(seed):
    rng = np.random.default_rng(seed)
    q = some(4, rng)
    p = perturbed(q, direction(4, rng), 0.1)
    a = rng.standard_normal((4, 4))
    mapped = [Gaussian(a @ one.mean, a @ one.covariance @ a.T) for one in (p, q)]
    assert expansion(*mapped) == pytest.approx(expansion(p, q), rel=1e-8)
    assert theorem2(*mapped) != pytest.approx(theorem2(p, q), rel=1e-2)


@pytest.mark.parametrize(("dims", "rows", "repeats"), [(3, 500, 1200), (10, 2000, 400), (30, 3000, 150)])
def test_what_sampling_adds_agrees_with_simulation(dims, rows, repeats):
    mean, error = simulated(dims, rows, repeats, np.random.default_rng(dims))
    assert error < 0.02 * mean
    assert mean == pytest.approx(sampling(dims, rows), rel=0.05)
    assert abs(mean - sampling_exact(dims, rows)) < 3 * error


def test_with_few_rows_the_exact_part_is_right_and_the_leading_term_too_small():
    mean, error = simulated(10, 25, 1500, np.random.default_rng(0))
    assert abs(mean - sampling_exact(10, 25)) < 3 * error
    assert sampling(10, 25) < 0.9 * mean
    assert sampling_exact(10, 10) == np.inf
    assert sampling_exact(10, 10**6) == pytest.approx(sampling(10, 10**6), rel=1e-4)


def test_the_sampling_part_adds_to_any_divergence_exactly():
    """Sums of rows are drawn at once: a mean and a Wishart matrix."""
    rng, rows, dims = np.random.default_rng(1), 12, 3
    p, q = some(dims, rng), some(dims, rng)
    means = rng.multivariate_normal(p.mean, p.covariance / rows, size=4000)
    scatters = wishart(rows - 1, p.covariance).rvs(4000, random_state=rng) / rows
    found = [kl(Gaussian(m, s), q) for m, s in zip(means, scatters, strict=True)]
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - kl(p, q) - sampling_exact(dims, rows)) < 3 * error
    assert error < 0.03 * sampling_exact(dims, rows)


@pytest.mark.parametrize("formula", [theorem2, expansion])
def test_rows_add_the_leading_term(formula):
    rng = np.random.default_rng(0)
    p, q = (moments(rng.standard_normal((50, 4))) for _ in range(2))
    assert formula(p, q, rows=50) - formula(p, q) == pytest.approx(4 * 7 / 200)


def test_the_table_holds_every_size_of_every_dimension():
    table = compared([1, 3], [0.1, 0.2], np.random.default_rng(0))
    assert [(row.dims, row.size) for row in table] == [(1, 0.1), (1, 0.2), (3, 0.1), (3, 0.2)]
    for row in table:
        assert abs(row.expansion_error) < 0.012 < abs(row.theorem2_error)
        assert row.theorem2 == pytest.approx(row.exact * (1 + row.theorem2_error))
