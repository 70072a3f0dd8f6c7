"""Where FedAKD ends on least squares when its two models teach each other.

Two outputs, d their difference: at a high temperature T, T^2 KL(teacher || student) is the squared gap of the
d, over 8, up to O(1 / T^2). So everything is quadratic. For (sum, difference) / sqrt 2 of the outputs, with
client k's matrix H_k and its own optimum v_k, a fit descends along
  H_k (w - v_k)                        for the sum, which distillation does not see,
  H_k (w - v_k) + c H_k (w - teacher)  for the difference, c = alpha / 2 or beta / 2.
The local model is never replaced, so it rests where its gradient is 0, however many steps it takes: at v_k
for the sum, and for the difference at w_k = (v_k + a w_g) / (1 + a), a = alpha / 2. With that teacher and
b = beta / 2 the global copy's gradient at w is (1 + b) H_k (w - c_k), c_k = (v_k + b w_k) / (1 + b), so S
steps of rate lr from w_g move it by
  -(I - (I - lr (1 + b) H_k)^S) (w_g - c_k),  w_g - c_k = (1 + a + b) / ((1 + a) (1 + b)) (w_g - v_k):
a factor, the same for all clients, times FedAvg's move at the rate (1 + b) lr. So w_g rests where FedAvg at
that rate does, for any alpha: at the optimum of all with one full-batch step a round, elsewhere with several.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedakd.engine.base import Spec
from fedakd.examples import Examples
from fedakd.methods.fedakd import FedAKD
from fedakd.training import Recipe
from least_squares import (
    close,
    far,
    federation,
    flat,
    optimum,
    quadratics,
    resting_point,
    settled,
)

HOT = 1e4  # the terms of order 1 / T^2 are below what is compared, and so is rounding, of order T
TEACHING = [(1.0, 1.0), (2.0, 0.5), (0.5, 2.0)]  # alpha, beta
# shorter steps than elsewhere: distillation makes them up to twice as long
ONE_SHORT, SHORT = Recipe(epochs=1, batch_size=100, lr=0.35), Recipe(epochs=3, batch_size=100, lr=0.2)


@pytest.fixture(params=TEACHING, ids=str)
def method(request: pytest.FixtureRequest) -> FedAKD:
    alpha, beta = request.param
    return FedAKD(alpha=alpha, beta=beta, temperature=HOT, select="all")


def turned(w: np.ndarray) -> np.ndarray:
    """Of the two outputs' columns the sum and the difference, (3, 2)."""
    return w @ np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)


def resting(spec: Spec) -> np.ndarray:
    """Where w_g rests, (3, 2)."""
    rates = (spec.recipe.lr, (1 + spec.method.beta / 2) * spec.recipe.lr)  # type: ignore[attr-defined]
    both = [turned(resting_point(replace(spec, recipe=replace(spec.recipe, lr=r)), "size")) for r in rates]
    return turned(np.c_[both[0][:, 0], both[1][:, 1]])  # the turn is its own inverse


def on(rows: Examples, line: np.ndarray) -> Examples:
    """The same inputs, their outputs exactly on a line."""
    design = torch.cat([rows.x, torch.ones(len(rows), 1)], dim=1)  # type: ignore[list-item]
    return Examples(rows.x, design @ torch.from_numpy(line))


def test_the_global_model_reaches_the_optimum_with_one_full_batch_step(sizes, method):
    spec = federation(method, sizes, ONE_SHORT, outputs=2)
    assert close(flat(settled(spec)[0]["model"]), optimum(spec, "size"), by=1e-6)
    assert close(resting(spec), optimum(spec, "size"))


def test_with_several_it_rests_where_fedavg_of_longer_steps_does(sizes, method):
    spec = federation(method, sizes, SHORT, outputs=2)
    w_g = flat(settled(spec)[0]["model"])
    assert close(w_g, resting(spec), by=1e-6)
    assert far(w_g, optimum(spec, "size"))
    assert far(w_g, resting_point(spec, "size"), by=1e-3)  # FedAvg's with the same steps


@pytest.mark.parametrize("recipe", [ONE_SHORT, SHORT], ids=["one", "several"])
def test_personal_models_rest_between_their_own_optimum_and_the_global_model(sizes, method, recipe):
    spec = federation(method, sizes, recipe, outputs=2)
    state, kept = settled(spec, also="local")
    w_g, a = turned(flat(state["model"])), np.array([0.0, method.alpha / 2])
    for k, (h, b) in enumerate(quadratics(spec)):
        expected = (turned(np.linalg.solve(h, b)) + a * w_g) / (1 + a)
        assert close(turned(flat(kept[k]["local"])), expected, by=1e-6)
        assert far(expected, w_g)


def test_a_stronger_teacher_makes_another_personal_model_and_the_same_global_one(sizes):
    weak, strong = (
        settled(federation(FedAKD(alpha=a, temperature=HOT, select="all"), sizes, SHORT, outputs=2))
        for a in (0.5, 2.0)
    )
    assert close(flat(weak[0]["model"]), flat(strong[0]["model"]), by=1e-6)
    assert all(far(flat(weak[1][k]["local"]), flat(strong[1][k]["local"])) for k in weak[1])


def test_clients_that_agree_all_reach_the_common_optimum(sizes, method):
    """Equal optima, whatever else differs: nothing to disagree about, so several steps do no harm."""
    spec = federation(method, sizes, SHORT, outputs=2)
    line = optimum(spec, "size")
    agreed = tuple(replace(one, train=on(one.train, line)) for one in spec.clients)
    state, kept = settled(replace(spec, clients=agreed), also="local")
    assert close(flat(state["model"]), line, by=1e-6)
    assert all(close(flat(kept[k]["local"]), line, by=1e-6) for k in kept)
