"""What can be said of FedAKD's convergence, and is proved in docs/theory.md: three propositions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit

from fedakd.methods.fedakd import FedAKD
from fedakd.rounds import Messages
from fedakd.theory.contraction import Listening, course, full_batch, specified
from fedakd.theory.logistic import Rows, federation, gradient, optimum


def problem(decay: float, seed: int = 0):
    return federation(4, 3, 60, 1.0, decay, np.random.default_rng(seed))


def resting(own, alpha, beta):
    """(w_g, w_1, ...) at rest: optima for soft labels, found in turns until they stay."""
    w_g = optimum(own.pool, own.decay)
    for _ in range(300):
        w_k = [optimum(softened(rows, alpha, w_g), own.decay / (1 + alpha)) for rows in own.clients]
        pairs = zip(own.clients, w_k, strict=True)
        taught = replace(own, clients=tuple(softened(rows, beta, w) for rows, w in pairs))
        before, w_g = w_g, optimum(taught.pool, own.decay / (1 + beta))
        if np.abs(w_g - before).max() < 1e-12:
            break
    return np.array([w_g, *w_k])


def softened(rows, weight, teacher):
    """Cross-entropy plus weight times distillation is, but for a factor, cross-entropy with these labels."""
    return Rows(rows.x, (rows.y + weight * expit(rows.x @ teacher)) / (1 + weight))


@pytest.mark.parametrize("decay", [0.3, 0.03])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 2.0), (2.0, 0.5)])
def test_with_one_full_batch_step_the_gradient_at_rest_is_that_of_proposition_1(decay, alpha, beta):
    """(1 + c) grad F(w_g) = c decay (w_g - mean of w_k), c = beta / (1 + alpha)."""
    own, method = problem(decay), FedAKD(alpha=alpha, beta=beta, select="all")
    rest = resting(own, alpha, beta)
    assert np.allclose(one_round(own, method, full_batch(own, 1, 0.5), rest), rest, atol=1e-9)
    c, w_bar = beta / (1 + alpha), own.shares @ rest[1:]
    expected = c / (1 + c) * decay * (rest[0] - w_bar)
    assert np.linalg.norm(expected) > 1e-5
    assert np.allclose(gradient(rest[0], own.pool, decay), expected, atol=1e-9)
    several = one_round(own, method, full_batch(own, 3, 0.5), rest)
    assert np.abs(several - rest).max() > 1e-4  # it is about one step alone


def test_fedakd_goes_to_that_rest():
    own, method = problem(0.3), FedAKD(select="all")
    seen = course(own, method, full_batch(own, 1, 0.6), rounds=150)
    assert np.allclose(seen.w_g, resting(own, 1.0, 1.0)[0], atol=1e-8)


def test_without_a_penalty_the_rest_is_the_optimum():
    own = problem(1e-7)
    assert np.abs(resting(own, 1.0, 2.0)[0] - optimum(own.pool, 1e-7)).max() < 1e-5
    strong = problem(0.1)
    assert np.abs(resting(strong, 1.0, 2.0)[0] - optimum(strong.pool, 0.1)).max() > 1e-3


def test_rows_that_are_left_out_move_it_elsewhere():
    """Proposition 1 needs all rows: with the paper's selection the gradient at rest is another."""
    own = problem(0.1)
    seen = course(own, FedAKD(), full_batch(own, 1, 0.8), rounds=80)
    w_bar = own.shares @ np.array(seen.steps[-1].w_k)
    said = 0.1 * (seen.w_g - w_bar) / 3
    assert np.linalg.norm(gradient(seen.w_g, own.pool, 0.1) - said) > 0.05


@pytest.mark.parametrize("seed", range(20))
def test_alternating_steps_on_quadratics_contract_below_the_bound_of_proposition_2(seed):
    """The round as a matrix, H_k of no common axes: its spectral radius is below 1, up to the very bound."""
    rng = np.random.default_rng(seed)
    clients, dims = 3, 4
    roots = rng.standard_normal((clients, dims, dims))
    hs = roots @ roots.transpose(0, 2, 1) + 0.05 * np.eye(dims)
    q, (a, b) = rng.dirichlet(np.ones(clients)), 10 ** rng.uniform(-1, 1, 2)
    longest = 2 / ((1 + max(a, b)) * max(np.linalg.norm(h, 2) for h in hs))
    for share in (0.01, 0.5, 0.999):
        assert radius(hs, q, a, b, share * longest) < 1


def radius(hs, q, a, b, lr):
    """Of one round on (w_1, ..., w_K, w_g), everything measured from where it rests."""
    clients, dims = len(hs), hs.shape[1]
    size, eye = dims * (clients + 1), np.eye(dims)
    place = [slice(dims * k, dims * (k + 1)) for k in range(clients + 1)]
    first, second = np.eye(size), np.eye(size)
    for k in range(clients):
        first[place[k], place[k]] = eye - lr * (1 + a) * hs[k]
        first[place[k], place[-1]] = lr * a * hs[k]
        second[place[-1], place[k]] = lr * b * q[k] * hs[k]
    second[place[-1], place[-1]] = eye - lr * (1 + b) * np.tensordot(q, hs, 1)
    return np.abs(np.linalg.eigvals(second @ first)).max()


@pytest.mark.parametrize("epochs", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_a_round_brings_any_two_states_closer_as_proposition_3_says(seed, epochs):
    own = problem(0.5, seed)
    steepest = max(np.linalg.norm(rows.x.T @ rows.x / len(rows), 2) for rows in own.clients) / 4
    alpha, beta = 0.8 * 0.5 / steepest, 0.4 * 0.5 / steepest
    lr = 1 / (0.5 + (1 + alpha) * steepest)
    method = FedAKD(alpha=alpha, beta=beta, select="all")
    kept = (1 - lr * 0.5) ** epochs
    promised = kept + (1 - kept) * 0.8
    states = np.random.default_rng(seed).standard_normal((2, 5, 4))  # w_g and four w_k, twice
    for _ in range(3):
        after = np.array([one_round(own, method, full_batch(own, epochs, lr), state) for state in states])
        before, states = distance(states), after
        assert distance(states) <= promised * before


def distance(states):
    return np.linalg.norm(states[0] - states[1], axis=1).max()


def one_round(own, method, recipe, state):
    """From (w_g, w_1, ...) to the same after a round of this package's FedAKD."""
    engine = Listening(specified(own, method, recipe, 0))
    engine.start({"weight": torch.from_numpy(state[0].copy())})
    for site, w_k in zip(engine.sites.values(), state[1:], strict=True):
        site.kept["local"] = {"weight": torch.from_numpy(w_k.copy())}
    server = {"model": {"weight": torch.from_numpy(state[0].copy())}}
    updates, _ = engine.train(1, Messages(method, server, list(engine.sites)))
    w_g = own.shares @ np.array([updates[k]["model"]["weight"].numpy() for k in engine.sites])
    return np.array([w_g, *(site.kept["local"]["weight"].numpy() for site in engine.sites.values())])
