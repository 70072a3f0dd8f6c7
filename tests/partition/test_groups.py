"""Clients that come with the data."""

from __future__ import annotations

import numpy as np
import pytest
from small_requests import request

from fedakd.errors import PartitionError
from fedakd.partition import ByGroup
from fedakd.partition.contract import Rows

GROUPS = np.array(["ohio", "iowa", "utah"] * 20)
Y = np.zeros(60, np.int64)


def parts(partition: ByGroup, rows: Rows, total: int, clients: int = 3) -> list[Rows]:
    rng = np.random.default_rng(0)
    plan = partition.plan(request(np.empty((60, 0)), Y, rows, clients, total), rng)
    return plan.draw(rows, total, rng)


@pytest.mark.parametrize("groups", [GROUPS, tuple(GROUPS.tolist())])
def test_a_client_has_exactly_the_rows_of_its_group(groups: object) -> None:
    drawn = parts(ByGroup(groups), np.arange(60), 60)  # type: ignore[arg-type]
    assert [set(GROUPS[part].tolist()) for part in drawn] == [{"iowa"}, {"ohio"}, {"utah"}]
    assert np.array_equal(np.sort(np.concatenate(drawn)), np.arange(60))


def test_a_fraction_takes_the_same_share_of_every_group() -> None:
    assert [len(part) for part in parts(ByGroup(GROUPS), np.arange(60), 30)] == [10, 10, 10]


def test_the_number_of_clients_is_the_number_of_groups() -> None:
    with pytest.raises(PartitionError, match="form 3 groups, so clients=3; got 4"):
        parts(ByGroup(GROUPS), np.arange(60), 60, clients=4)


def test_a_group_without_rows_in_a_pool_is_named() -> None:
    rows = np.flatnonzero(GROUPS != "ohio")
    with pytest.raises(PartitionError, match="first 'ohio'; merge or leave out small groups"):
        parts(ByGroup(GROUPS), rows, len(rows))


def test_groups_must_be_there_and_as_many_as_rows() -> None:
    with pytest.raises(PartitionError, match="a dataset with `groups`"):
        parts(ByGroup(), np.arange(60), 60)
    with pytest.raises(PartitionError, match="60 rows, 5 groups"):
        parts(ByGroup(GROUPS[:5]), np.arange(60), 60)
