"""The covariate-shift generator: BCS and ICS."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from small_requests import request

from fedakd.audit import audit
from fedakd.errors import DataError, PartitionError
from fedakd.federation import federate
from fedakd.partition import GaussianShift, power_law
from fedakd.partition.contract import Features, Labels, Rows
from fedakd.partition.shift import ShiftPlan

if TYPE_CHECKING:
    from fedakd.data import ImageDataset


def lumps(rows: int = 6000, features: int = 12, seed: int = 0) -> tuple[Features, Labels]:
    """Non-Gaussian data whose classes are lumps with exponential tails."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, rows)
    centres = 2 * rng.standard_normal((4, features))
    return centres[y] + rng.exponential(size=(rows, features)), y


X, Y = lumps()
TRAIN = np.arange(4200)


def planned(partition: GaussianShift, clients: int = 6, total: int = 2100, seed: int = 0) -> ShiftPlan:
    return partition.plan(request(X, Y, TRAIN, clients, total), np.random.default_rng(seed))


def drawn(plan: ShiftPlan, rows: Rows = TRAIN, total: int = 2100) -> list[Rows]:
    return plan.draw(rows, total, np.random.default_rng(1))


@pytest.mark.parametrize("c", [0.5, 2.0, 3.0])
@pytest.mark.parametrize("replacement", [True, False])
def test_calibrated_realises_c(c: float, replacement: bool) -> None:
    plan = planned(GaussianShift(c, dims=5, replacement=replacement))
    shifts = plan.shifts(drawn(plan))
    assert [one.realised for one in shifts] == pytest.approx([c] * 6, rel=0.02)
    assert np.mean([one.drawn for one in shifts]) == pytest.approx(c, rel=0.15)
    assert all(one.alignment > 0.3 for one in shifts)


def test_sizes_are_equal_for_bcs_and_power_law_for_ics() -> None:
    assert [len(part) for part in drawn(planned(GaussianShift(1.0)))] == [350] * 6
    ics = planned(GaussianShift(1.0, sizes="power"))
    assert [len(part) for part in drawn(ics)] == power_law(2100, 6)


def test_only_rows_of_the_pool_are_drawn_and_test_rows_shift_alike() -> None:
    plan = planned(GaussianShift(2.0, dims=5))
    test = np.arange(4200, 6000)
    parts = drawn(plan, test, 1800)
    assert all(np.isin(part, test).all() for part in parts)
    for part, train in zip(parts, drawn(plan), strict=True):
        assert np.allclose(plan.z[part].mean(axis=0), plan.z[train].mean(axis=0), atol=0.6)


def test_nothing_is_fitted_on_rows_outside_the_train_pool() -> None:
    other = X.copy()
    other[4200:] *= 50
    partition = GaussianShift(2.0, dims=5)
    a, b = (partition.plan(request(x, Y, TRAIN, 6, 2100), np.random.default_rng(0)) for x in (X, other))
    for one, two in zip(a.choices, b.choices, strict=True):
        assert np.array_equal(one.tilt.delta, two.tilt.delta)


def test_a_client_keeps_its_direction_when_others_join() -> None:
    few, many = planned(GaussianShift(1.0), 3), planned(GaussianShift(1.0), 6)
    for one, two in zip(few.choices, many.choices, strict=False):
        assert np.allclose(one.tilt.delta, two.tilt.delta)


def test_without_replacement_no_row_repeats_within_a_client() -> None:
    parts = drawn(planned(GaussianShift(1.0, replacement=False)))
    assert all(len(np.unique(part)) == len(part) for part in parts)


def test_diagnosis_counts_distinct_rows_and_effective_share() -> None:
    plan = planned(GaussianShift(2.0, dims=5))
    parts = drawn(plan)
    for one, part in zip(plan.shifts(parts), parts, strict=True):
        assert one.requested == 2.0
        assert one.distinct == len(set(part.tolist())) <= len(part)
        assert one.effective_share == pytest.approx(one.effective_size / len(part))
        assert one.gaussian_kl > one.realised / 4
        assert one.label_kl >= 0


def test_an_unreachable_c_is_told_one_that_works() -> None:
    with pytest.raises(PartitionError, match=r"cannot be shifted by c=500 .* force=True") as caught:
        planned(GaussianShift(500.0, dims=5))
    told = re.search(r"; c=([\d.]+) is reached by all clients", str(caught.value))
    assert told is not None
    plan = planned(GaussianShift(float(told[1]), dims=5))
    realised = [one.realised for one in plan.shifts(drawn(plan))]
    assert realised == pytest.approx([float(told[1])] * 6, rel=0.01)
    with pytest.raises(PartitionError, match="cannot be shifted"):
        planned(GaussianShift(1.01 * float(told[1]), dims=5))


def test_force_goes_where_few_effective_rows_are_left() -> None:
    far = GaussianShift(12.0, dims=5, directions=4)
    with pytest.raises(PartitionError, match="at least 1% of its 2100 rows"):
        planned(far, clients=1)
    plan = planned(GaussianShift(12.0, dims=5, directions=4, force=True), clients=1)
    assert plan.choices[0].effective < 21
    assert re.match(r"clients 0: effective size below 5% of their rows \(lowest 0\.\d%\)", plan.warnings[0])


@pytest.mark.parametrize("mode", ["ratio", "density"])
def test_collapsed_weights_are_an_error_that_names_a_way_out(mode: str) -> None:
    with pytest.raises(PartitionError, match="a smaller c or fewer dims would do"):
        planned(GaussianShift(200.0, mode=mode, directions=3))  # type: ignore[arg-type]


def test_first_healthy_direction_is_taken_else_the_best() -> None:
    healthy = planned(GaussianShift(1.0, dims=5))
    assert all(one.tried == 1 for one in healthy.choices)
    thin = planned(GaussianShift(6.0, dims=5, directions=8), clients=1, total=4200)
    assert thin.choices[0].tried == 8
    alone = planned(GaussianShift(6.0, dims=5, directions=1, force=True), clients=1, total=4200)
    assert thin.choices[0].effective > alone.choices[0].effective
    assert "below 5%" in thin.warnings[0]


def test_fewer_dimensions_than_asked_for_are_used_with_a_warning() -> None:
    flat = X[:, :3] @ np.random.default_rng(0).standard_normal((3, 30))
    plan = GaussianShift(1.0).plan(request(flat, Y, TRAIN, 2, 1000), np.random.default_rng(0))
    assert plan.z.shape[1] == 3
    assert "vary in 3 dimensions only" in plan.warnings[0]


def test_rows_that_are_not_finite_are_refused_wherever_they_are() -> None:
    broken = X.copy()
    broken[-1, 0] = np.nan
    with pytest.raises(PartitionError, match="some rows hold nan or inf"):
        GaussianShift(1.0).plan(request(broken, Y, TRAIN, 2, 1000), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"c": 0.0}, "c, the squared Mahalanobis shift, must be positive"),
        ({"c": float("inf")}, "must be positive and finite, got inf"),
        ({"dims": 0}, "dims must be at least 1"),
        ({"directions": 0}, "directions must be at least 1"),
        ({"mode": "ration"}, "did you mean 'ratio'"),
        ({"sizes": "pow"}, "did you mean 'power'"),
        ({"cov": "rotated", "c_cov": 1.0}, "did you mean 'rotate'"),
        ({"features": "rew"}, "did you mean 'raw'"),
        ({"kl": 0.0}, "kl, a KL divergence, must be positive"),
        ({"c_cov": -1.0}, "c_cov, a KL divergence, must be positive and finite, got -1"),
        ({"kl": 1.5, "c": 5.0}, "kl=1.5 is mean and covariance together; leave out c and c_cov, or kl"),
        ({"kl": 1.5, "c_cov": 0.3}, "leave out c and c_cov, or kl"),
        ({"kl": 1.5, "mode": "ratio"}, "kl is solved for, which needs mode=calibrated, got ratio"),
        ({"c_cov": 0.3, "mode": "density"}, "c_cov is solved for"),
        ({"cov": "rotate"}, "cov=rotate needs c_cov"),
    ],
)
def test_impossible_fields(fields: dict[str, object], message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        GaussianShift(**fields)  # type: ignore[arg-type]


def test_the_reach_told_of_an_accepted_client_is_attained_and_not_exceeded() -> None:
    def alone(c: float) -> ShiftPlan:
        return planned(GaussianShift(c, dims=5, directions=1), clients=1)

    plan = alone(1.0)
    (one,) = plan.shifts(drawn(plan))
    assert one.reach == one.furthest > 1.0
    near = alone(0.99 * one.reach)
    assert near.shifts(drawn(near))[0].realised == pytest.approx(0.99 * one.reach, rel=0.001)
    assert near.shifts(drawn(near))[0].reach == pytest.approx(one.reach)
    assert near.shifts(drawn(near))[0].effective_share == pytest.approx(0.01, rel=0.15)  # as few as may be
    with pytest.raises(PartitionError, match="cannot be shifted"):
        alone(1.05 * one.reach)


def test_every_client_tells_its_reach_and_the_furthest_of_all_it_tried() -> None:
    shifts = []
    for seed in range(4):
        plan = planned(GaussianShift(6.0, dims=5, directions=8), clients=1, total=4200, seed=seed)
        shifts += plan.shifts(drawn(plan, total=4200))
    assert all(6.0 <= one.reach <= one.furthest for one in shifts)
    assert any(one.reach < one.furthest for one in shifts)
    ratio = planned(GaussianShift(1.0, mode="ratio"), clients=1)
    assert np.isnan(ratio.shifts(drawn(ratio))[0].reach)


@pytest.mark.parametrize("replacement", [True, False])
def test_the_test_pool_is_shifted_alike_within_the_error_told(replacement: bool) -> None:
    partition = GaussianShift(2.0, dims=5, replacement=replacement)
    judged = request(X, Y, TRAIN, 6, 2100, test=np.arange(4200, 6000), test_total=900)
    plan = partition.plan(judged, np.random.default_rng(0))
    shifts = plan.shifts(drawn(plan))
    assert all(abs(one.test_realised - 2.0) < 4 * one.test_error for one in shifts)
    assert len({one.test_realised for one in shifts}) == 6


def test_the_test_error_is_the_spread_over_pools() -> None:
    """Pools drawn again and again from one distribution, under one tilt."""
    rng, shifts = np.random.default_rng(0), []
    for _ in range(60):
        x, y = rng.standard_normal((3000, 3)), np.zeros(3000, np.int64)
        judged = request(x, y, np.arange(2000), 1, 2000, test=np.arange(2000, 3000), test_total=1000)
        one = GaussianShift(1.0).plan(judged, np.random.default_rng(7))
        shifts.append(one.shifts([np.arange(2000)])[0])
    spread = np.std([one.test_realised for one in shifts])
    assert spread == pytest.approx(np.mean([one.test_error for one in shifts]), rel=0.3)


def test_density_in_many_dimensions_is_refused_with_its_effective_size_unless_forced() -> None:
    x = np.random.default_rng(0).standard_normal((4000, 120))
    y, train = np.zeros(4000, np.int64), np.arange(4000)
    density = GaussianShift(5.0, mode="density", dims=100, directions=3)
    with pytest.raises(
        PartitionError, match=r"mode=density leaves an effective size of [\d.]+ \(3 dir"
    ) as told:
        density.plan(request(x, y, train, 1, 4000), np.random.default_rng(0))
    named = float(re.search(r"size of ([\d.]+) ", str(told.value).split("density leaves")[1])[1])  # type: ignore[index]
    forced = replace(density, force=True).plan(request(x, y, train, 1, 4000), np.random.default_rng(0))
    assert forced.choices[0].effective == pytest.approx(named, rel=0.01)
    assert named < 40


def fashion() -> ImageDataset:
    from fedakd.data import load

    try:
        return load("fashion-mnist", download=False)
    except DataError:
        pytest.skip("FashionMNIST is not on this machine")


@pytest.mark.slow
@pytest.mark.parametrize("c", [2, 5, 10])
def test_fashion_mnist_is_shifted_as_asked_and_the_audit_says_so(c: int) -> None:
    found = audit(federate(fashion(), f"ics({c})", 10, fraction=0.5))
    shifts = [one.shift for one in found.clients if one.shift]
    assert found.clean
    assert [one.realised for one in shifts] == pytest.approx([c] * 10, rel=0.02)
    assert [one.drawn for one in shifts] == pytest.approx([c] * 10, rel=0.2)
    assert all(abs(one.test_realised - c) < 4 * one.test_error for one in shifts)
    assert all(one.reach >= c for one in shifts)
