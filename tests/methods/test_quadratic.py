"""Where methods end on least squares, whose optimum is known: at it, or at a point of their own."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

import toys
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.feddc import FedDC
from fedakd.methods.fedprox import FedProx
from fedakd.methods.scaffold import SCAFFOLD
from least_squares import (
    ONE,
    SEVERAL,
    close,
    course,
    end,
    far,
    federation,
    flat,
    optimum,
    quadratics,
    resting_point,
    settled,
)


def test_the_two_optima_differ(sizes):
    spec = federation(FedAvg(), sizes)
    assert far(optimum(spec, "size"), optimum(spec, "uniform"))


@pytest.mark.parametrize("by", ["size", "uniform"])
def test_fedavg_reaches_the_optimum_with_one_full_batch_step(sizes, by):
    spec = federation(FedAvg(by), sizes, ONE)
    assert close(end(spec), optimum(spec, by))


@pytest.mark.parametrize("by", ["size", "uniform"])
def test_fedavg_stops_short_of_it_with_several_steps(sizes, by):
    spec = federation(FedAvg(by), sizes)
    assert close(end(spec), resting_point(spec, by))
    assert far(resting_point(spec, by), optimum(spec, by))


def test_fedprox_stops_short_of_it_at_another_point(sizes):
    spec = federation(FedProx(mu=1.0), sizes)
    assert close(end(spec), resting_point(spec, "size", pull=1.0))
    assert far(resting_point(spec, "size", pull=1.0), optimum(spec, "size"))
    assert far(resting_point(spec, "size", pull=1.0), resting_point(spec, "size"), by=1e-3)


def test_fedakd_without_distillation_ends_where_fedavg_does(sizes):
    method = FedAKD(alpha=0.0, beta=0.0, select="all")
    one, several = federation(method, sizes, ONE), federation(method, sizes)
    assert close(end(one), optimum(one, "size"))
    assert close(end(several), resting_point(several, "size"))


@pytest.mark.parametrize(("by", "server_lr"), [("size", 1.0), ("uniform", 1.0), ("uniform", 0.7)])
def test_scaffold_reaches_the_optimum_with_several_steps(sizes, by, server_lr):
    spec = federation(SCAFFOLD(by, server_lr=server_lr), sizes)
    state, kept = settled(spec)
    w = optimum(spec, by)
    assert close(flat(state["model"]), w)
    assert close(flat(state["c"]), np.zeros((3, 1)))
    for k, (h, b) in enumerate(quadratics(spec)):
        assert close(flat(kept[k]["c_k"]), h @ w - b)


def test_scaffold_reaches_the_optimum_of_the_regularised_problem(sizes):
    spec = federation(SCAFFOLD(), sizes, replace(SEVERAL, weight_decay=0.5))
    assert close(end(spec), optimum(spec, "uniform"))
    assert far(optimum(spec, "uniform"), optimum(federation(SCAFFOLD(), sizes), "uniform"))


@pytest.mark.parametrize("by", ["size", "uniform"])
def test_scaffold_reaches_the_optimum_when_half_of_the_clients_miss_each_round(by):
    spec = federation(SCAFFOLD(by), toys.TEN)
    assert close(end(spec, participation=0.5), optimum(spec, by))


# FedDC's laws. A client at rest has moved nowhere, so each of its steps moved it nowhere: with F_k its loss,
#   gradient of F_k + alpha / nu_k h_k + g / nu_k - g_k = 0 at w_g.
# If gradients are corrected, g_k has become the first two terms, so g = 0, and g is the mean of nu_k g_k; the
# drifts have mean 0: w_g is the optimum, whatever alpha. If they are not (g = g_k = 0), the mean of nu_k
# times the left side is again the gradient of the whole, provided that drifts are kept and alpha is above 0.
# Else nothing makes each client rest, only their mean. nu_k is n_k over the mean size; 1 if scaled is off.


def weighing(method: FedDC) -> str:
    return "size" if method.scaled or method.weigh_by == "size" else "uniform"


REACHING = [
    FedDC(alpha=0.3),
    FedDC(alpha=1.0, scaled=False),
    FedDC(alpha=1.0, drift=False),
    FedDC(alpha=0.0, drift=False, scaled=False),
    FedDC(alpha=0.0, scaled=False),
]


@pytest.mark.parametrize("method", REACHING, ids=repr)
def test_feddc_reaches_the_optimum_if_gradients_are_corrected(sizes, method):
    spec = federation(method, sizes)
    assert close(end(spec), optimum(spec, weighing(method)))


@pytest.mark.parametrize("scaled", [True, False])
def test_feddc_reaches_the_optimum_if_alpha_pulls_on_drifts(sizes, scaled):
    method = FedDC(alpha=1.0, correct=False, scaled=scaled)
    spec = federation(method, sizes)
    state, kept = settled(spec)
    w = optimum(spec, weighing(method))
    assert close(flat(state["model"]), w)
    nus = np.array(sizes) / np.mean(sizes) if scaled else np.ones(len(sizes))
    for k, (h, b) in enumerate(quadratics(spec)):
        assert np.allclose(flat(kept[k]["drift"]), -nus[k] * (h @ w - b), atol=1e-7)
    assert close(flat(state["drift"]), np.zeros((3, 1)))


@pytest.mark.parametrize(
    ("method", "point"),
    [
        (FedDC("size", alpha=1.0), optimum),
        (FedDC("size", alpha=1.0, correct=False), optimum),
        (FedDC("size", alpha=0.0, correct=False), resting_point),
    ],
)
def test_feddc_weighing_by_size_ends_where_sizes_count_once(sizes, method, point):
    spec = federation(method, sizes)
    assert close(end(spec), point(spec, "size"))


@pytest.mark.parametrize(
    "method", [FedDC(alpha=1.0), FedDC(alpha=1.0, correct=False, scaled=False)], ids=repr
)
def test_feddc_reaches_the_optimum_when_half_of_the_clients_miss_each_round(method):
    spec = federation(method, toys.TEN)
    assert close(end(spec, participation=0.5), optimum(spec, weighing(method)))


@pytest.mark.parametrize(("alpha", "scaled"), [(0.0, True), (1.0, True), (1.0, False)])
def test_feddc_with_neither_ends_where_fedprox_with_equal_weights_does(sizes, alpha, scaled):
    spec = federation(FedDC(alpha=alpha, drift=False, correct=False, scaled=scaled), sizes)
    pulls = alpha * np.mean(sizes) / np.array(sizes) if scaled else alpha
    w = end(spec)
    assert close(w, resting_point(spec, "uniform", pulls))
    assert far(w, optimum(spec, "uniform"))
    assert far(w, optimum(spec, "size"))


def test_feddc_with_drifts_nothing_pulls_on_ends_where_fedavg_does_and_they_grow_for_ever(sizes):
    spec = federation(FedDC(alpha=0.0, correct=False), sizes)
    *_, (_, before), (state, kept) = islice(course(spec), 60)
    assert close(flat(state["model"]), resting_point(spec, "uniform"))
    assert close(flat(state["drift"]), np.zeros((3, 1)))
    growth = [flat(kept[k]["drift"]) - flat(before[k]["drift"]) for k in kept]
    assert all(far(step, np.zeros((3, 1))) for step in growth)
    assert close(np.mean(growth, axis=0), np.zeros((3, 1)))
