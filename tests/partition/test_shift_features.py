"""What is shifted: principal components, raw features or an encoder's, fitted once for equal requests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_requests import request

from fedakd.errors import PartitionError
from fedakd.partition import GaussianShift, whitening
from fedakd.partition.contract import Features, Rows
from fedakd.partition.shift import ShiftPlan

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.exponential(size=(3000, 6)), np.full((3000, 2), 7.0)], axis=1)
Y = np.zeros(3000, np.int64)
TRAIN = np.arange(2000)


def planned(partition: GaussianShift, x: NDArray[Any] = X, seed: int = 0) -> ShiftPlan:
    return partition.plan(request(x, Y, TRAIN, 3, 900), np.random.default_rng(seed))


def rows(plan: ShiftPlan) -> list[Rows]:
    return plan.draw(TRAIN, 900, np.random.default_rng(1))


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    whitening.FITS.clear()


# Feature maps


def test_raw_features_are_all_that_vary_whitened() -> None:
    plan = planned(GaussianShift(1.0, features="raw", dims=2))
    pool = plan.z[TRAIN]
    assert pool.shape[1] == 6
    assert plan.warnings == ()
    assert np.allclose(pool.T @ pool / len(pool), np.eye(6), atol=1e-4)
    exact = np.linalg.inv(np.cov(X[TRAIN, :6].T, bias=True))
    for one, part in zip(plan.shifts(rows(plan)), rows(plan), strict=True):
        gap = X[part, :6].mean(axis=0) - X[TRAIN, :6].mean(axis=0)
        assert one.drawn == pytest.approx(gap @ exact @ gap, rel=0.001)


def test_too_many_raw_features_are_refused_with_advice() -> None:
    wide = np.random.default_rng(0).standard_normal((3000, 14, 15))
    with pytest.raises(PartitionError, match=r"at most 200 features, but 210 vary; features=pca takes"):
        planned(GaussianShift(1.0, features="raw"), wide)
    assert planned(GaussianShift(1.0), wide).z.shape[1] == 10


def test_an_encoder_comes_before_whitening() -> None:
    def squares(x: NDArray[Any], rows: Rows) -> Features:
        return np.asarray(x[rows, :4] ** 2)

    plan = planned(GaussianShift(1.0, dims=3, features=squares))
    by_hand = planned(GaussianShift(1.0, dims=3), X[:, :4] ** 2)
    assert plan.z.shape[1] == 3
    assert np.array_equal(plan.z, by_hand.z)
    assert [one.tolist() for one in rows(plan)] == [one.tolist() for one in rows(by_hand)]


def test_an_encoder_must_give_a_line_for_each_row() -> None:
    with pytest.raises(PartitionError, match=r"each of 3000 rows one line of numbers, got shape \(3000,\)"):
        planned(GaussianShift(1.0, features=lambda x, rows: x[rows, 0]))


# One fit for equal requests


def test_what_is_remembered_is_what_would_be_fitted_bit_for_bit() -> None:
    first = planned(GaussianShift(1.0, dims=4))
    again = planned(GaussianShift(1.0, dims=4))
    whitening.FITS.clear()
    fresh = planned(GaussianShift(1.0, dims=4))
    assert np.array_equal(first.z, again.z)
    assert np.array_equal(first.z, fresh.z)
    assert [one.tolist() for one in rows(again)] == [one.tolist() for one in rows(fresh)]


def test_a_fit_is_shared_by_strengths_and_by_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = []

    def counted(*arguments: Any) -> whitening.Whitening:
        fits.append(arguments)
        return FIT(*arguments)

    monkeypatch.setattr(whitening, "fit", counted)
    for c in (0.5, 1.0, 1.5):
        planned(GaussianShift(c, dims=4))
    planned(GaussianShift(kl=0.5, dims=4), X.copy())
    assert len(fits) == 1
    changed = X.copy()
    changed[0, 0] += 1
    planned(GaussianShift(1.0, dims=4), changed)
    planned(GaussianShift(1.0, dims=3))
    planned(GaussianShift(1.0, dims=4), seed=1)
    GaussianShift(1.0, dims=4).plan(request(X, Y, TRAIN[1:], 3, 900), np.random.default_rng(0))
    assert len(fits) == 5


def test_rows_changed_in_place_are_fitted_anew() -> None:
    x = X.copy()
    before = planned(GaussianShift(1.0, dims=4), x).z
    x[:, 0] *= 3
    after = planned(GaussianShift(1.0, dims=4), x).z
    whitening.FITS.clear()
    assert np.array_equal(after, planned(GaussianShift(1.0, dims=4), x).z)
    assert not np.allclose(before, after)


def test_only_a_few_fits_are_remembered() -> None:
    for seed in range(2 * whitening.KEPT):
        planned(GaussianShift(1.0, dims=4), seed=seed)
    assert len(whitening.FITS) == whitening.KEPT


FIT = whitening.fit
