"""Logistic federations: their optimum, and that this package's methods descend the very same objective."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from fedakd.errors import FedakdError
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedavg import FedAvg
from fedakd.theory.contraction import course, fitted, full_batch
from fedakd.theory.logistic import curvatures, federation, gradient, hessian, optimum, risk

pytestmark = pytest.mark.slow  # together they train for more than a few seconds


def some(heterogeneity: float = 1.0, seed: int = 0, decay: float = 0.1):
    return federation(4, 3, 60, heterogeneity, decay, np.random.default_rng(seed))


@pytest.mark.parametrize("decay", [1e-4, 0.1, 10.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_known_to_ten_digits_and_is_that_of_scipy(seed, decay):
    problem = some(heterogeneity=3.0, seed=seed, decay=decay)
    w = optimum(problem.pool, decay)
    assert np.linalg.norm(gradient(w, problem.pool, decay)) < 1e-10
    theirs = minimize(risk, np.zeros(4), (problem.pool, decay), "L-BFGS-B", gradient, options={"gtol": 1e-9})
    assert np.allclose(w, theirs.x, atol=1e-4)
    assert risk(w, problem.pool, decay) <= theirs.fun + 1e-14


def test_separable_rows_are_no_trouble():
    problem = some(decay=1e-6)
    rows = replace(problem.clients[0], y=(problem.clients[0].x[:, 0] > 0).astype(float))
    assert np.linalg.norm(gradient(optimum(rows, 1e-6), rows, 1e-6)) < 1e-10


def test_gradient_and_hessian_are_those_of_finite_differences():
    problem, w, step = some(), np.array([0.3, -0.2, 0.5, 0.1]), 1e-6
    ways = step * np.eye(4)
    slopes = [(risk(w + e, problem.pool, 0.1) - risk(w - e, problem.pool, 0.1)) / (2 * step) for e in ways]
    assert np.allclose(gradient(w, problem.pool, 0.1), slopes, atol=1e-8)
    bends = [gradient(w + e, problem.pool, 0.1) - gradient(w - e, problem.pool, 0.1) for e in ways]
    assert np.allclose(hessian(w, problem.pool, 0.1), np.array(bends) / (2 * step), atol=1e-8)
    smallest, largest = curvatures([(w, problem.pool)], 0.1)
    assert 0.1 < smallest < largest


def test_sizes_differ_and_shares_add_up():
    problem = some()
    assert [len(rows) for rows in problem.clients] == [60, 30, 20, 15]
    assert problem.shares.sum() == pytest.approx(1)
    with pytest.raises(FedakdError, match="decay 0"):
        some(decay=0)


def test_heterogeneity_is_a_dial():
    """The clients' own optima move away from the common one."""

    def spread(heterogeneity: float) -> float:
        problem = some(heterogeneity)
        common = optimum(problem.pool, 0.1)
        return float(np.mean([np.linalg.norm(optimum(rows, 0.1) - common) for rows in problem.clients]))

    assert spread(0.0) < spread(1.0) < spread(4.0)


def test_one_full_batch_step_of_fedavg_is_a_step_of_gradient_descent():
    problem = some()
    seen = course(problem, FedAvg(), full_batch(problem, 1, 0.5), rounds=2)
    w = np.zeros(4)
    for _ in range(2):
        w = w - 0.5 * gradient(w, problem.pool, 0.1)
    assert np.allclose(seen.w_g, w, atol=1e-14)
    best = risk(optimum(problem.pool, 0.1), problem.pool, 0.1)
    assert seen.gaps[-1] == pytest.approx(risk(w, problem.pool, 0.1) - best)
    assert seen.gaps[0] == pytest.approx(np.log(2) - best)


def test_a_round_of_fedakd_is_remembered_in_the_papers_letters():
    problem, lr = some(), 0.5
    seen = course(problem, FedAKD(alpha=0.7, beta=0.3), full_batch(problem, 1, lr), rounds=1)
    (step,) = seen.steps
    for rows, chosen, w_k in zip(problem.clients, step.selected, step.w_k, strict=True):
        assert np.allclose(w_k, -lr * gradient(np.zeros(4), rows, 0.1))  # both models begin at 0
        assert len(chosen) == np.sum((rows.x @ w_k > 0) == rows.y)
    assert np.allclose(seen.w_g, problem.shares @ np.array(step.w_gk))


def test_fedavg_with_one_full_batch_step_contracts_to_the_optimum():
    problem = some()
    seen = course(problem, FedAvg(), full_batch(problem, 1, 0.5), rounds=60)
    fit = fitted(seen.gaps)
    assert fit.floor <= seen.gaps[-1]
    assert np.all(np.diff(seen.gaps[seen.gaps > 1e-13]) < 0)
    assert fit.floor < 1e-8 * seen.gaps[0]
    assert 0 < fit.rate < 1


def test_several_local_epochs_leave_a_floor_that_grows_with_heterogeneity():
    floors = []
    for heterogeneity in (0.0, 1.0, 3.0):
        problem = some(heterogeneity)
        floors.append(fitted(course(problem, FedAvg(), full_batch(problem, 5, 0.5), rounds=40).gaps).floor)
    assert floors[2] > 1e-4
    assert floors[0] < floors[1] < floors[2]


@pytest.mark.parametrize("rate", [0.5, 0.9])
@pytest.mark.parametrize("floor", [0.0, 1e-6, 0.02])
def test_rate_and_floor_of_a_known_sequence_are_found(rate, floor):
    fit = fitted(floor + (0.3 - floor) * rate ** np.arange(100))
    assert fit.rate == pytest.approx(rate, rel=1e-3)
    assert fit.floor == pytest.approx(floor, rel=1e-3, abs=1e-5)


def test_they_are_found_under_noise_and_from_below():
    rng, t = np.random.default_rng(0), np.arange(80)
    fit = fitted((0.05 + 0.5 * 0.85**t) * (1 + 0.01 * rng.standard_normal(80)))
    assert fit.rate == pytest.approx(0.85, abs=0.05)
    assert fit.floor == pytest.approx(0.05, rel=0.02)
    fit = fitted(0.05 - 0.04 * 0.85**t)
    assert (fit.rate, fit.floor) == pytest.approx((0.85, 0.05), rel=1e-3)


def test_a_gap_that_falls_below_its_floor_and_rises_to_it_has_no_rate():
    t = np.arange(80)
    fit = fitted(0.05 + 0.5 * 0.6**t - 0.3 * 0.85**t + 0.0)
    assert np.isnan(fit.rate)
    assert fit.floor == pytest.approx(0.05, rel=0.02)


def test_a_gap_that_does_not_move_has_a_floor_and_no_rate():
    fit = fitted(np.full(40, 0.2))
    assert fit.floor == 0.2
    assert np.isnan(fit.rate)


def test_a_step_that_is_too_long_is_an_error_that_says_so():
    problem = some()
    with pytest.raises(FedakdError, match="a smaller learning rate helps"):
        course(problem, FedAvg(), full_batch(problem, 1, 1e200), rounds=5)
