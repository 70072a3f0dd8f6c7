"""Features in units of their own, and encoders that are not forgotten."""

from __future__ import annotations

import numpy as np
from small_requests import request

from fedakd.partition import GaussianShift, text


def plan_of(shift: GaussianShift, x: np.ndarray):
    y = np.zeros(len(x), dtype=np.int64)
    return shift.plan(request(x, y, np.arange(len(x)), 2, 500), np.random.default_rng(0))


def test_a_raw_feature_in_large_units_does_not_drown_the_others():
    x = np.random.default_rng(0).exponential(size=(2000, 6))
    plain, mixed = (
        plan_of(GaussianShift(1, features="raw"), x * s) for s in (1.0, np.array([3e3, 1, 1, 1, 1, 1e-4]))
    )
    assert plain.z.shape == mixed.z.shape == (2000, 6)
    assert not mixed.warnings


def test_raw_features_that_say_the_same_are_told():
    x = np.random.default_rng(0).exponential(size=(2000, 3))
    plan = plan_of(GaussianShift(1, features="raw"), np.c_[x, x[:, 0]])
    assert plan.z.shape[1] == 3
    assert any("vary in 3 dimensions only" in warning for warning in plan.warnings)


def halves(x, rows):
    return x[rows].reshape(len(rows), -1)[:, ::2]


def test_an_encoder_is_part_of_what_a_partition_is():
    shift = GaussianShift(1, features=halves)
    assert shift != GaussianShift(1)
    assert "halves" in text(shift)
    assert text(GaussianShift(1)) == "bcs(1)"
