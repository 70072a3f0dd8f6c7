"""Changes of the covariance, and requests by KL divergence, against closed forms and exact divergences."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from small_requests import request

from fedakd.errors import PartitionError
from fedakd.gaussians import kl, moments
from fedakd.partition import GaussianShift
from fedakd.partition.bending import Bend, Bending, bend, bent
from fedakd.partition.contract import ClientShift, Features
from fedakd.partition.shift import ShiftPlan
from fedakd.partition.tilt import Shares, Tilt, effective_size, unit

NORMAL = np.random.default_rng(0).standard_normal((60_000, 4))
U = unit(4, np.random.default_rng(1))


def skewed(rows: int = 6000, features: int = 8) -> Features:
    """Two lumps with exponential tails, which no tilt leaves as they are."""
    rng = np.random.default_rng(0)
    lumps = 1.5 * rng.integers(0, 2, (rows, 1)) * rng.standard_normal(features)
    return np.asarray(lumps + rng.exponential(size=(rows, features)))


X, TRAIN = skewed(), np.arange(4200)
Y = np.zeros(len(X), np.int64)


def planned(partition: GaussianShift, clients: int = 3, total: int = 1500) -> ShiftPlan:
    return partition.plan(request(X, Y, TRAIN, clients, total), np.random.default_rng(0))


def shifts(partition: GaussianShift) -> tuple[ClientShift, ...]:
    plan = planned(partition)
    return plan.shifts(plan.draw(TRAIN, 1500, np.random.default_rng(1)))


def covariance_part(shares: Features, z: Features) -> float:
    """(tr S - M - ln det S) / 2 by numpy's weighted covariance, in the pool's own coordinates."""
    ratio = np.linalg.solve(np.cov(z.T, bias=True), np.cov(z.T, aweights=shares, bias=True))
    return float(0.5 * (np.trace(ratio) - z.shape[1] - np.linalg.slogdet(ratio)[1]))


def family(kind: Bending, seed: int = 2) -> Bend:
    return bend(kind, 4, np.random.default_rng(seed))


# Families of forms


@pytest.mark.parametrize("kind", ["widen", "narrow", "rotate"])
def test_a_form_gives_gaussian_rows_the_covariance_it_stands_for(kind: Bending) -> None:
    own, strength = family(kind), 0.2
    tilt = Tilt(own.lean(0.5 * U, strength), form=own.form(strength))
    shares = Shares()(tilt.logs(NORMAL))
    expected = np.linalg.inv(np.eye(4) - own.form(strength))
    assert np.allclose(np.cov(NORMAL.T, aweights=shares), expected, atol=0.06)
    mean = shares @ NORMAL
    assert mean @ U / np.linalg.norm(mean) > 0.995


def test_rotate_correlates_two_directions_and_keeps_all_variances() -> None:
    own = family("rotate")
    covariance = np.linalg.inv(np.eye(4) - own.form(0.5))
    first, second = (own.plane @ np.array([1.0, sign]) / np.sqrt(2) for sign in (1, -1))
    assert np.trace(covariance) == pytest.approx(4)
    assert first @ covariance @ second == pytest.approx(0.5 / 1.5)
    assert [one @ covariance @ one for one in (first, second)] == pytest.approx([1, 1])
    assert abs(first @ second) < 1e-12


def test_scale_is_wider_for_some_clients_and_narrower_for_others() -> None:
    assert {family("scale", seed).kind for seed in range(20)} == {"widen", "narrow"}


# The strength that is asked for


@pytest.mark.parametrize("c", [0.0, 0.5])
@pytest.mark.parametrize("size", [None, 1000])
@pytest.mark.parametrize("kind", ["widen", "narrow", "rotate"])
def test_gaussian_rows_get_the_divergence_and_the_mean_asked_for(
    kind: Bending, size: int | None, c: float
) -> None:
    z, shares = NORMAL[:20_000], Shares(size)
    found = bent(
        U, family(kind), z, c, 0.15, lambda tilt: effective_size(shares(tilt.logs(z))) >= 200, shares
    )
    assert found.tilt is not None
    given = shares(found.tilt.logs(z))
    assert covariance_part(given, z) == pytest.approx(0.15, rel=0.02)
    assert np.allclose(given @ z, np.sqrt(c) * U, atol=0.06 if c else 1e-6)
    assert effective_size(given) >= 200
    wider = np.trace(np.cov(z.T, aweights=given)) - 4
    assert {"widen": wider > 0.3, "narrow": wider < -0.3, "rotate": abs(wider) < 0.3}[kind]


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("cov", ["widen", "narrow", "rotate"])
def test_rows_of_any_shape_get_the_divergence_asked_for(cov: Bending, replacement: bool) -> None:
    for c, c_cov in ((0.0, 0.2), (0.3, 0.5)):
        asked = GaussianShift(c, dims=4, c_cov=c_cov, cov=cov, replacement=replacement)
        for one in shifts(asked):
            assert (one.requested, one.cov_requested) == (c, c_cov)
            assert one.cov_realised == pytest.approx(c_cov, rel=0.02)
            assert one.realised == pytest.approx(c, rel=0.02, abs=1e-9)
            assert one.kl_realised == pytest.approx(c / 2 + c_cov, rel=0.02)
            assert one.cov_reach >= c_cov


def test_the_divergence_told_is_that_of_the_weighted_rows() -> None:
    plan = planned(GaussianShift(0.3, dims=4, c_cov=0.5))
    (one, *_) = plan.shifts(plan.draw(TRAIN, 1500, np.random.default_rng(1)))
    shares, pool = Shares()(plan.choices[0].tilt.logs(plan.z[TRAIN])), plan.z[TRAIN]
    assert one.cov_realised == pytest.approx(covariance_part(shares, pool), rel=1e-3)


@pytest.mark.parametrize("cov", ["narrow", "rotate"])
def test_a_covariance_out_of_reach_is_told_one_that_all_clients_reach(cov: Bending) -> None:
    asked = GaussianShift(0.0, dims=4, c_cov=50.0, cov=cov, directions=3)
    with pytest.raises(PartitionError, match=r"given c_cov=50 beside c=0 with an effective size") as caught:
        planned(asked)
    told = re.search(r"; c_cov=([\d.]+) is reached by all clients, and force=True", str(caught.value))
    assert told is not None
    for one in shifts(replace(asked, c_cov=float(told[1]))):
        assert one.cov_realised == pytest.approx(float(told[1]), rel=0.02)
        assert one.effective_share >= 0.01
    with pytest.raises(PartitionError, match="cannot be given"):
        planned(replace(asked, c_cov=1.5 * float(told[1])))


def test_a_mean_shift_that_changes_the_covariance_more_than_asked_is_told() -> None:
    asked = GaussianShift(3.0, dims=4, c_cov=0.001, directions=3)
    with pytest.raises(PartitionError, match="the mean's shift alone changes the covariance") as caught:
        planned(asked)
    least = re.search(r"c_cov=([\d.]+) is the least beside this c", str(caught.value))
    assert least is not None
    for one in shifts(replace(asked, c_cov=1.1 * float(least[1]))):
        assert one.cov_realised == pytest.approx(1.1 * float(least[1]), rel=0.02)


def test_a_mean_out_of_reach_is_told_as_without_a_covariance() -> None:
    with pytest.raises(PartitionError, match=r"shifted by c=900 .*; c=[\d.]+ is reached by all clients"):
        planned(GaussianShift(900.0, dims=4, c_cov=0.5, directions=3))


def test_scaling_alone_is_tried_once_each_way() -> None:
    with pytest.raises(PartitionError, match="2 directions in 4 dims tried"):
        planned(GaussianShift(0.0, dims=4, c_cov=50.0))


def test_one_dimension_cannot_be_turned() -> None:
    with pytest.raises(PartitionError, match="cov=rotate needs two directions"):
        planned(GaussianShift(1.0, dims=1, c_cov=0.5, cov="rotate"))
    assert shifts(GaussianShift(0.0, dims=1, c_cov=0.1))[0].cov_realised == pytest.approx(0.1, rel=0.02)


# Requests by divergence


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("asked", [0.2, 1.5])
def test_a_divergence_is_met_by_the_exact_formula(asked: float, replacement: bool) -> None:
    partition = GaussianShift(kl=asked, dims=4, replacement=replacement)
    plan = planned(partition, total=1500)
    told = plan.shifts(plan.draw(TRAIN, 1500, np.random.default_rng(1)))
    pool = plan.z[TRAIN]
    for one, choice in zip(told, plan.choices, strict=True):
        shares = partition.shares(500)(choice.tilt.logs(pool))
        mean = shares @ pool - pool.mean(axis=0)
        gap = mean @ np.linalg.solve(np.cov(pool.T, bias=True), mean)
        assert gap / 2 + covariance_part(shares, pool) == pytest.approx(asked, rel=0.02)
        assert one.kl_realised == pytest.approx(asked, rel=0.02)
        assert one.kl_requested == asked <= one.reach
        assert np.isnan(one.requested)


def test_rows_drawn_by_divergence_have_about_that_divergence() -> None:
    plan = planned(GaussianShift(kl=1.0, dims=4), clients=1, total=4200)
    (part,) = plan.draw(TRAIN, 4200, np.random.default_rng(1))
    assert kl(moments(plan.z[part]), moments(plan.z[TRAIN])) == pytest.approx(1.0, rel=0.1)


def test_a_divergence_out_of_reach_is_told_one_that_works() -> None:
    asked = GaussianShift(kl=400.0, dims=4, directions=3)
    with pytest.raises(PartitionError, match="cannot be shifted by kl=400") as caught:
        planned(asked)
    told = re.search(r"; kl=([\d.]+) is reached by all clients", str(caught.value))
    assert told is not None
    assert shifts(replace(asked, kl=float(told[1])))[0].kl_realised == pytest.approx(float(told[1]), rel=0.02)
    with pytest.raises(PartitionError, match="cannot be shifted"):
        planned(replace(asked, kl=1.05 * float(told[1])))


def test_forced_divergences_go_where_few_rows_are_left() -> None:
    (one, *_) = shifts(GaussianShift(kl=10.0, dims=4, directions=2, force=True))
    assert one.kl_realised == pytest.approx(10.0, rel=0.02)
