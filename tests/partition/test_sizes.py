"""Sizes of clients: power laws and equal parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_requests import request

from fedakd.errors import PartitionError
from fedakd.partition import Equal, PowerLaw, power_law
from fedakd.partition.contract import Rows

ROWS = np.arange(100, 1100)


def parts(partition: PowerLaw | Equal, total: int, clients: int = 5, seed: int = 0) -> list[Rows]:
    rng = np.random.default_rng(seed)
    y = np.zeros(len(ROWS), np.int64)
    plan = partition.plan(request(np.empty((len(ROWS), 0)), y, ROWS, clients, total), rng)
    return plan.draw(ROWS, total, rng)


def test_power_law_sizes_follow_one_over_k() -> None:
    assert power_law(30000, 10) == [10243, 5122, 3415, 2560, 2048, 1707, 1463, 1280, 1138, 1024]
    assert power_law(25000, 10) == [8536, 4268, 2846, 2134, 1708, 1422, 1219, 1066, 948, 853]


@given(total=st.integers(0, 10**6), clients=st.integers(1, 60), exponent=st.floats(0, 3))
def test_power_law_gives_out_every_row_and_never_more_to_a_later_client(
    total: int, clients: int, exponent: float
) -> None:
    sizes = power_law(total, clients, exponent)
    assert sum(sizes) == total
    assert sizes == sorted(sizes, reverse=True)


@given(total=st.integers(0, 10**6), clients=st.integers(1, 60))
def test_exponent_zero_is_equal_sizes(total: int, clients: int) -> None:
    sizes = power_law(total, clients, 0)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("partition", [PowerLaw(), PowerLaw(0.5), Equal()])
def test_no_row_is_given_twice(partition: PowerLaw | Equal) -> None:
    given_out = np.concatenate(parts(partition, 700))
    assert len(np.unique(given_out)) == 700
    assert np.isin(given_out, ROWS).all()


def test_rows_are_shuffled() -> None:
    assert not np.array_equal(np.concatenate(parts(Equal(), 1000)), ROWS)
    assert not np.array_equal(parts(Equal(), 1000, seed=1)[0], parts(Equal(), 1000, seed=2)[0])


def test_a_client_left_empty_is_told_how_many_rows_would_do() -> None:
    with pytest.raises(PartitionError, match=r"20 rows leave client 6 of 10 .* 30 rows would do") as caught:
        parts(PowerLaw(), 20, clients=10)
    assert "at most 7 clients" in str(caught.value)
    assert min(power_law(20, 7)) > 0
    assert min(power_law(20, 8)) == 0
    assert min(power_law(30, 10)) > 0


@pytest.mark.parametrize("exponent", [-0.1, float("nan"), 11.0])
def test_exponent_out_of_range(exponent: float) -> None:
    with pytest.raises(PartitionError, match="exponent must be between 0 and 10"):
        PowerLaw(exponent)
