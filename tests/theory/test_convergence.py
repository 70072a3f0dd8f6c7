"""Theorem 3: r is negative, always; and its constants mean what they say."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedakd.errors import FedakdError
from fedakd.methods.fedakd import FedAKD
from fedakd.theory.contraction import course, full_batch
from fedakd.theory.convergence import Constants, dissimilarity, measured, rate, why
from fedakd.theory.logistic import federation, optimum

positive = st.floats(1e-4, 1e4)
constants = st.builds(
    Constants,
    L=positive,
    mu=positive,
    B=st.floats(1, 1e4),
    gamma=st.floats(0, 1),
    theta=st.floats(0, 1e3),
    omega1=positive,
    omega2=positive,
    alpha=positive,
    beta=positive,
)

pytestmark = pytest.mark.slow  # together they train for more than a few seconds


@given(constants)
@settings(max_examples=500)
def test_r_is_negative_for_every_smooth_strongly_convex_loss(c):
    c = replace(c, L=max(c.L, c.mu), mu=min(c.L, c.mu))
    found = rate(c)
    assert found.r_2 >= c.L / c.mu >= 1
    assert found.r_1 > 0
    assert found.gain + found.error < 0
    assert found.curvature < 0
    assert found.r < 0
    assert found.promise > 1


def test_even_the_kindest_constants_do_not_help():
    kindest = Constants(L=1, mu=1, B=1, gamma=0, theta=0, omega1=1e9, omega2=1e-9, alpha=1e9, beta=1e-9)
    assert rate(kindest).r < 0
    assert rate(replace(kindest, B=1e-9)).r < 0


def test_r_by_hand():
    """L = 2, mu = 1, all else simple: err = 5 * 0.5 = 2.5, reach = 2.5 + 1 + 1.5 / 4."""
    c = Constants(L=2, mu=1, B=1, gamma=0.5, theta=0, omega1=1, omega2=1, alpha=4, beta=1)
    found = rate(replace(c, gamma=0.5))
    err = (2 * 1.5 + 1) * 0.5
    reach = err + 1 + 1.5 / 4
    assert (found.a, found.reach, found.r_1, found.r_2) == (5, reach, 2 * reach + err, 3.5)
    assert found.r == pytest.approx(5 - reach**2 - 5 * (2 * reach + err + 3.5))
    assert found.promise == pytest.approx(1 - 2 * found.r)


def test_it_refuses_what_the_theorem_does_not_cover():
    c = Constants(L=2, mu=1, B=1, gamma=0, theta=0, omega1=1, omega2=1, alpha=1, beta=0)
    with pytest.raises(FedakdError, match="above 0, got 1 and 0"):
        rate(c)
    with pytest.raises(FedakdError, match="L below mu"):
        rate(replace(c, beta=1, mu=3))


def test_it_says_why():
    c = Constants(L=2, mu=1, B=1, gamma=0, theta=0, omega1=1, omega2=1, alpha=1, beta=1)
    text = " ".join(why(c))
    assert "r_2 >= 1" in text
    assert "never holds" in text
    assert f"{rate(c).r:.4g}" in text


@pytest.fixture(scope="module")
def problem():
    return federation(3, 3, 60, 1.0, 0.1, np.random.default_rng(0))


@pytest.mark.parametrize("select", ["correct", "all"])
def test_measured_constants_are_within_their_bounds(problem, select):
    method = FedAKD(select=select)
    found = measured(problem, method, course(problem, method, full_batch(problem, 2, 0.5), rounds=10))
    assert len(found) == 10
    bound = max(np.linalg.norm(r.x.T @ r.x / len(r), 2) for r in problem.clients) / 4 + 0.1
    for c in found:
        assert 0.1 <= c.mu <= c.L
        assert select == "correct" or bound >= c.L
        assert c.B >= 1
        assert (c.theta == 0) == (select == "all")
        assert select == "correct" or c.omega1 == c.omega2
        assert rate(c).r < 0
        assert all(np.isfinite(getattr(c, f.name)) for f in fields(c))
    if select == "correct":
        assert min(c.theta for c in found) > 0.1


def test_exact_local_solutions_have_no_inexactness(problem):
    method = FedAKD(alpha=0.5, beta=0.5, select="all")
    rough, fine = (
        measured(problem, method, course(problem, method, full_batch(problem, epochs, 0.8), rounds=2))[
            0
        ].gamma
        for epochs in (1, 400)
    )
    assert fine < 1e-6 < rough


def test_no_round_that_starts_from_a_stationary_solution_counts(problem):
    method = FedAKD(alpha=1e-9, beta=1e-9, select="all")
    seen = course(problem, method, full_batch(problem, 1, 0.8), rounds=150)
    assert 20 < len(measured(problem, method, seen)) < 150


def test_dissimilarity_has_no_bound_near_the_optimum(problem):
    """So the theorem's B exists only away from it."""
    w, off = optimum(problem.pool, 0.1), np.ones(4)
    near, nearer = (dissimilarity(problem, w + size * off) for size in (1e-3, 1e-6))
    assert nearer > 500 * near > 500
