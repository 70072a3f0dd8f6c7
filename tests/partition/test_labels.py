"""Label-shift partitions: the class ladder and Dirichlet shares."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_requests import request

from fedakd.errors import PartitionError
from fedakd.partition import ClassLadder, Dirichlet
from fedakd.partition.contract import Labels, Rows, UnluckyPlan
from fedakd.partition.labels import LadderPlan


def ladder(y: Labels, clients: int, total: int, seed: int = 0) -> tuple[LadderPlan, list[Rows]]:
    rows, rng = np.arange(len(y)), np.random.default_rng(seed)
    plan = ClassLadder().plan(request(np.empty((len(y), 0)), y, rows, clients, total), rng)
    return plan, plan.draw(rows, total, rng)


def shares(y: Labels, alpha: float, clients: int, total: int, seed: int = 0) -> list[Rows]:
    rows, rng = np.arange(len(y)), np.random.default_rng(seed)
    plan = Dirichlet(alpha).plan(request(np.empty((len(y), 0)), y, rows, clients, total), rng)
    return plan.draw(rows, total, rng)


def classes(y: Labels, parts: list[Rows]) -> list[int]:
    return [len(np.unique(y[part])) for part in parts]


BALANCED = np.repeat(np.arange(10), 200)


def test_client_k_has_k_classes_and_all_have_the_same_size() -> None:
    plan, parts = ladder(BALANCED, 10, 1000)
    assert classes(BALANCED, parts) == list(range(1, 11))
    assert [len(part) for part in parts] == [100] * 10
    assert plan.warnings == ()


def test_other_numbers_of_clients_climb_in_even_steps() -> None:
    assert classes(BALANCED, ladder(BALANCED, 4, 800)[1]) == [1, 4, 7, 10]
    two = np.repeat([0, 1], 500)
    assert classes(two, ladder(two, 4, 800)[1]) == [1, 1, 2, 2]


def test_classes_of_a_client_are_even_and_no_row_is_given_twice() -> None:
    _, parts = ladder(BALANCED, 10, 1000)
    for part in parts:
        counts = np.unique(BALANCED[part], return_counts=True)[1]
        assert counts.max() - counts.min() <= 1
    assert len(np.unique(np.concatenate(parts))) == 1000


def test_which_classes_come_first_is_random() -> None:
    firsts = {int(BALANCED[ladder(BALANCED, 10, 1000, seed)[1][0]][0]) for seed in range(20)}
    assert len(firsts) > 3


def test_all_shrink_alike_when_a_class_runs_out_and_the_fraction_told_is_met() -> None:
    plan, parts = ladder(BALANCED, 10, 2000)
    sizes = {len(part) for part in parts}
    assert len(sizes) == 1
    assert sizes < {*range(100, 200)}
    told = re.search(r"instead of 200, .* fraction=([\d.]+) is met in full", plan.warnings[0])
    assert told is not None
    fraction = float(told[1])
    assert 0.5 <= fraction < 1
    again, met = ladder(BALANCED, 10, int(fraction * 2000))
    assert again.warnings == ()
    assert {len(part) for part in met} == {int(fraction * 2000) // 10}


def test_a_class_missing_from_a_pool_is_an_error() -> None:
    y = np.array([0] * 50 + [2] * 50)
    with pytest.raises(PartitionError, match="class 1 has none in a pool of 100"):
        ladder(y, 2, 100)


def test_too_few_rows_for_all_classes_is_an_error() -> None:
    with pytest.raises(PartitionError, match=r"at least 10 rows per client, but a pool of 2000 rows gives 3"):
        ladder(BALANCED, 10, 30)


@settings(max_examples=50, deadline=None)
@given(
    counts=st.lists(st.integers(0, 80), min_size=1, max_size=6),
    clients=st.integers(1, 8),
    seed=st.integers(0, 99),
)
def test_a_ladder_is_even_or_refused(counts: list[int], clients: int, seed: int) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    if len(y) == 0:
        return
    try:
        _, parts = ladder(y, clients, len(y), seed)
    except PartitionError:
        return
    expected = np.rint(np.linspace(1, int(y.max()) + 1, clients)).astype(int).tolist()
    assert classes(y, parts) == expected
    assert len({len(part) for part in parts}) == 1
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))


def test_dirichlet_gives_each_client_the_floor_of_its_share() -> None:
    rng = np.random.default_rng(0)
    rows = np.arange(len(BALANCED))
    plan = Dirichlet(2.0).plan(request(np.empty((2000, 0)), BALANCED, rows, 5, 2000), rng)
    assert np.allclose(plan.shares.sum(axis=0), 1)
    parts = plan.draw(rows, 2000, rng)
    counts = np.array([np.bincount(BALANCED[part], minlength=10) for part in parts])
    assert np.array_equal(counts, np.floor(plan.shares * 200))
    half = plan.draw(rows, 1000, rng)
    assert np.array_equal([len(part) for part in half], np.floor(plan.shares * 100).sum(axis=1))


def test_dirichlet_gives_no_row_twice() -> None:
    rows = np.concatenate(shares(BALANCED, 1.0, 10, 2000))
    assert len(np.unique(rows)) == len(rows) > 1900


def test_a_small_alpha_concentrates_classes() -> None:
    few, many = (np.mean(classes(BALANCED, shares(BALANCED, alpha, 5, 2000))) for alpha in (0.2, 100.0))
    assert few < many == 10


def test_a_client_without_rows_is_bad_luck() -> None:
    with pytest.raises(UnluckyPlan, match="a larger alpha, fewer clients or a larger fraction would do"):
        shares(np.zeros(20, np.int64), 0.01, 10, 20)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_alpha_must_be_positive(alpha: float) -> None:
    with pytest.raises(PartitionError, match="alpha must be positive and finite"):
        Dirichlet(alpha)
