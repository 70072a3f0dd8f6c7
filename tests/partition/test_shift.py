"""The covariate-shift generator: BCS and ICS."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedakd.errors import PartitionError
from fedakd.partition import GaussianShift, power_law
from fedakd.partition.contract import Features, Labels, Rows
from fedakd.partition.shift import ShiftPlan


def lumps(rows: int = 6000, features: int = 12, seed: int = 0) -> tuple[Features, Labels]:
    """Non-Gaussian data whose classes are lumps with exponential tails."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, rows)
    centres = 2 * rng.standard_normal((4, features))
    return centres[y] + rng.exponential(size=(rows, features)), y


X, Y = lumps()
TRAIN = np.arange(4200)


def planned(partition: GaussianShift, clients: int = 6, total: int = 2100, seed: int = 0) -> ShiftPlan:
    return partition.plan(X, Y, TRAIN, clients, total, np.random.default_rng(seed))


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
    a, b = (partition.plan(x, Y, TRAIN, 6, 2100, np.random.default_rng(0)) for x in (X, other))
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
    plan = GaussianShift(1.0).plan(flat, Y, TRAIN, 2, 1000, np.random.default_rng(0))
    assert plan.z.shape[1] == 3
    assert "vary in 3 dimensions only" in plan.warnings[0]


def test_rows_that_are_not_finite_are_refused_wherever_they_are() -> None:
    broken = X.copy()
    broken[-1, 0] = np.nan
    with pytest.raises(PartitionError, match="some rows hold nan or inf"):
        GaussianShift(1.0).plan(broken, Y, TRAIN, 2, 1000, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"c": 0.0}, "c, the squared Mahalanobis shift, must be positive"),
        ({"c": float("inf")}, "must be positive and finite, got inf"),
        ({"dims": 0}, "dims must be at least 1"),
        ({"directions": 0}, "directions must be at least 1"),
        ({"mode": "ration"}, "did you mean 'ratio'"),
        ({"sizes": "pow"}, "did you mean 'power'"),
    ],
)
def test_impossible_fields(fields: dict[str, object], message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        GaussianShift(**fields)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("c", [2, 5, 10])
def test_fashion_mnist_is_shifted_as_asked_and_the_audit_says_so(c: int) -> None:
    from fedakd.audit import audit
    from fedakd.data import load
    from fedakd.errors import DataError
    from fedakd.federation import federate

    try:
        images = load("fashion-mnist", download=False)
    except DataError:
        pytest.skip("FashionMNIST is not on this machine")
    found = audit(federate(images, f"ics({c})", 10, fraction=0.5))
    assert found.clean
    assert [one.shift.realised for one in found.clients if one.shift] == pytest.approx([c] * 10, rel=0.02)
    assert [one.shift.drawn for one in found.clients if one.shift] == pytest.approx([c] * 10, rel=0.2)
