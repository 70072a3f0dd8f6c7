"""Theorem 1 against families whose divergence is known: normal, logistic, exponential."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedakd.gaussians import Array, Gaussian, kl
from fedakd.theory.families import (
    logistic_kl,
    logistic_log_p,
    logistic_nodes,
    normal_log_p,
    normal_nodes,
    normal_theta,
)
from fedakd.theory.fisher import (
    Nodes,
    drawn,
    fisher,
    fisher_slope,
    terms,
    theorem1,
    theorem1_corrected,
)
from fedakd.theory.gaussian import direction, expansion, perturbed, some

SIZES = np.geomspace(0.02, 0.2, 5)
SMALL = SIZES / 20  # where the third order, if it is wrong, outweighs the fourth


def slope(errors: list[float], sizes: Array = SIZES) -> float:
    return float(np.polyfit(np.log(sizes), np.log(np.abs(errors)), 1)[0])


@pytest.fixture(params=range(3))
def rng(request):
    return np.random.default_rng(request.param)


@pytest.fixture
def logistic(rng):
    design = torch.from_numpy(rng.standard_normal((20, 3)))
    omega, delta = (torch.from_numpy(rng.standard_normal(3)) for _ in range(2))
    return design, omega, delta


def test_the_normal_density_is_that_of_torch(rng):
    one = some(3, rng)
    x = torch.from_numpy(rng.standard_normal((10, 3)))
    theirs = torch.distributions.MultivariateNormal(torch.tensor(one.mean), torch.tensor(one.covariance))
    assert torch.allclose(normal_log_p(normal_theta(one), x), theirs.log_prob(x))


def test_the_fisher_information_of_a_normal_mean_and_variance(rng):
    """1 / s and 1 / 2s^2, which change by -1 / s^2 and -1 / s^3 with the variance s."""
    s = float(rng.uniform(0.5, 2))
    one = Gaussian(np.array([0.3]), np.array([[s]]))
    theta, nodes = normal_theta(one), normal_nodes(one)
    expected = torch.diag(torch.tensor([1 / s, 1 / (2 * s**2)], dtype=torch.float64))
    assert torch.allclose(fisher(normal_log_p, theta, nodes), expected)
    along = torch.tensor([0.0, 1.0], dtype=torch.float64)
    change = torch.diag(torch.tensor([-1 / s**2, -1 / s**3], dtype=torch.float64))
    assert torch.allclose(fisher_slope(normal_log_p, theta, along, nodes), change)


def test_the_derivative_of_the_information_is_that_of_finite_differences(logistic):
    design, omega, delta = logistic
    step = 1e-5
    ahead, behind = (
        fisher(logistic_log_p, omega + s * delta, logistic_nodes(design, omega + s * delta))
        for s in (step, -step)
    )
    change = fisher_slope(logistic_log_p, omega, delta, logistic_nodes(design, omega))
    assert torch.allclose(change, (ahead - behind) / (2 * step), atol=1e-8)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_on_normal_families_the_corrected_form_is_the_corrected_theorem_2(rng, dims):
    base = some(dims, rng)
    p = perturbed(base, direction(dims, rng), 0.2)
    omega = normal_theta(base)
    found = theorem1_corrected(normal_log_p, omega, normal_theta(p) - omega, normal_nodes(base), rows=100)
    assert found == pytest.approx(expansion(p, base, rows=100), rel=1e-9)


def test_on_normal_families_it_errs_by_the_fourth_power_and_the_printed_one_by_the_third(rng):
    base, along = some(2, rng), direction(2, rng)
    omega, nodes = normal_theta(base), normal_nodes(base)

    def error(formula, size):
        p = perturbed(base, along, size)
        return formula(normal_log_p, omega, normal_theta(p) - omega, nodes) - kl(p, base)

    assert slope([error(theorem1_corrected, size) for size in SIZES]) > 3.7
    assert slope([error(theorem1, size) for size in SMALL], SMALL) == pytest.approx(3, abs=0.2)


def test_on_logistic_families_it_errs_by_the_fourth_power_and_the_printed_one_by_the_third(logistic):
    design, omega, delta = logistic
    nodes = logistic_nodes(design, omega)

    def error(formula, size):
        exact = logistic_kl(design, omega + size * delta, omega)
        return formula(logistic_log_p, omega, size * delta, nodes) - exact

    assert slope([error(theorem1_corrected, size) for size in SIZES]) > 3.7
    assert slope([error(theorem1, size) for size in SMALL], SMALL) == pytest.approx(3, abs=0.2)


def test_the_logistic_divergence_is_that_of_torch(logistic):
    design, omega, delta = logistic
    p, q = (torch.distributions.Bernoulli(logits=design @ theta) for theta in (omega + delta, omega))
    theirs = torch.distributions.kl_divergence(p, q).mean()
    assert logistic_kl(design, omega + delta, omega) == pytest.approx(float(theirs))


def test_the_right_factor_is_a_third_for_natural_and_a_sixth_for_mean_parameters(rng, logistic):
    design, omega, delta = logistic
    natural = terms(logistic_log_p, omega, delta, logistic_nodes(design, omega))
    assert natural.factor == pytest.approx(1 / 3)
    base = some(2, rng)
    spread = perturbed(base, Gaussian(np.zeros(2), direction(2, rng).covariance), 0.1)
    at = normal_theta(base)
    mean = terms(normal_log_p, at, normal_theta(spread) - at, normal_nodes(base))
    assert mean.factor == pytest.approx(1 / 6)


def test_on_a_family_of_locations_there_is_no_third_order(rng):
    base = some(2, rng)
    moved = perturbed(base, Gaussian(direction(2, rng).mean, np.zeros((2, 2))), 0.5)
    at = normal_theta(base)
    found = terms(normal_log_p, at, normal_theta(moved) - at, normal_nodes(base))
    assert (found.slope, found.skewness) == pytest.approx((0, 0), abs=1e-12)
    assert found.corrected == pytest.approx(kl(moved, base))


def test_rows_drawn_from_the_family_serve_as_nodes():
    """The exponential density in its rate a: I = 1 / a^2, and KL(a + d || a) = ln(1 + d/a) - d / (a + d)."""
    log_p = lambda theta, x: torch.log(theta[0]) - theta[0] * x  # noqa: E731
    a, d = torch.tensor([2.0], dtype=torch.float64), torch.tensor([0.1], dtype=torch.float64)
    x = torch.from_numpy(np.random.default_rng(0).exponential(1 / 2, 40_000))
    exact = np.log(1 + 0.05) - 0.1 / 2.1
    assert theorem1_corrected(log_p, a, d, drawn(x)) == pytest.approx(exact, rel=0.02)
    assert float(fisher(log_p, a, drawn(x))) == pytest.approx(1 / 4, rel=0.02)


def test_rows_add_half_a_parameter_each():
    nodes = Nodes(torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    at = torch.tensor([0.0, 1.0], dtype=torch.float64)
    for formula in (theorem1, theorem1_corrected):
        extra = formula(normal_log_p, at, at, nodes, rows=50) - formula(normal_log_p, at, at, nodes)
        assert extra == pytest.approx(2 / 100)
