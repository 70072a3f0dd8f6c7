"""Laws of every federation: no base row on two sides, sizes that add up, seeds that decide everything."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedakd.audit import audit
from fedakd.errors import PartitionError
from fedakd.examples import Examples
from fedakd.federation import Federation, federate, split_pools
from fedakd.partition import power_law
from fedakd.partition.contract import Labels, Plan, Request, Rows

EVERY = [
    "iid",
    "pow",
    "bcs(0.5)",
    "ics(0.5)",
    "ics(1, mode=ratio)",
    "bcs(0.5, replacement=false)",
    "cla",
    "dir(2)",
]


@dataclass(frozen=True)
class Toy:
    x: NDArray[Any]
    y: Labels
    classes: int
    groups: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    name: str = "toy"

    def examples(self, rows: Rows) -> Examples:
        return Examples(torch.from_numpy(self.x[rows]), torch.from_numpy(self.y[rows]))


def toy(rows: int = 1000, classes: int = 4, seed: int = 0) -> Toy:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows)
    x = rng.standard_normal((rows, 6)) + y[:, None] * rng.standard_normal(6)
    return Toy(x, y, classes, groups=rng.integers(0, 5, rows))


def equal(a: Federation, b: Federation) -> bool:
    mine, yours = ([*one.train, *one.test, one.validation, one.global_test] for one in (a, b))
    return all(np.array_equal(p, q) for p, q in zip(mine, yours, strict=True))


@pytest.mark.parametrize("partition", [*EVERY, "group"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=st.integers(30, 600),
    classes=st.integers(1, 8),
    clients=st.integers(1, 12),
    fraction=st.floats(0.2, 1),
    seed=st.integers(0, 2**40),
)
def test_no_base_row_is_in_two_pools(
    partition: str, rows: int, classes: int, clients: int, fraction: float, seed: int
) -> None:
    data = toy(rows, classes, seed % 1000)
    clients = len(np.unique(data.groups)) if partition == "group" else clients
    try:
        federation = federate(data, partition, clients, fraction=fraction, seed=seed)
    except PartitionError as refused:
        if "disjoint" in str(refused):
            raise
        return
    train, test = set(np.concatenate(federation.train)), set(np.concatenate(federation.test))
    validation, common = set(federation.validation), set(federation.global_test)
    assert not train & (test | validation | common)
    assert not validation & (test | common)
    assert test <= common
    assert audit(federation).clean
    assert all(map(len, (*federation.train, *federation.test)))
    assert sum(map(len, federation.train)) <= fraction * len(data.y)


@pytest.mark.parametrize("partition", EVERY)
def test_every_partition_works_at_an_ordinary_size(partition: str) -> None:
    federation = federate(toy(), partition, 5, fraction=0.5)
    assert federation.clients == len(federation.test) == 5
    assert federation.evaluation == ("global" if partition[:3] in ("cla", "dir") else "local")
    assert (federation.shifts is not None) == ("cs(" in partition)


@pytest.mark.parametrize("partition", ["iid", "pow", "bcs(0.5)", "ics(0.5)"])
@given(rows=st.integers(200, 900), fraction=st.floats(0.5, 1))
@settings(max_examples=10, deadline=None)
def test_sizes_sum_to_the_fraction_of_each_pool(partition: str, rows: int, fraction: float) -> None:
    data = toy(rows)
    federation = federate(data, partition, 4, fraction=fraction)
    test = int(fraction * len(federation.global_test) + 1e-9)
    train = int(fraction * (rows - len(federation.validation) - len(federation.global_test)) + 1e-9)
    exponent = 1.0 if partition[0] in "p" or partition.startswith("ics") else 0.0
    assert [len(part) for part in federation.train] == power_law(train, 4, exponent)
    if federation.shifts is None:
        assert [len(part) for part in federation.test] == power_law(test, 4, exponent)
    else:
        assert [shift.test_size for shift in federation.shifts] == power_law(test, 4, exponent)
        assert all(part is federation.global_test for part in federation.test)


@pytest.mark.parametrize("partition", EVERY)
def test_scale_makes_train_parts_smaller_and_leaves_the_tests_alone(partition: str) -> None:
    whole, part = (federate(toy(2000), partition, 4, scale=scale, seed=3) for scale in (1.0, 0.25))
    floors = 16 if partition in ("cla", "dir(2)") else 0  # they round down for each client and class
    assert sum(map(len, part.train)) == pytest.approx(350, abs=floors)
    assert [len(rows) for rows in part.test] == [len(rows) for rows in whole.test]
    assert np.array_equal(part.validation, whole.validation)
    assert np.array_equal(part.global_test, whole.global_test)
    halved = federate(toy(2000), partition, 4, fraction=0.5, scale=0.25, seed=3)
    assert sum(map(len, halved.train)) == pytest.approx(175, abs=floors)
    if halved.weights is None:
        assert sum(map(len, halved.test)) == pytest.approx(200, abs=floors)


@pytest.mark.parametrize("partition", EVERY)
def test_the_seed_decides_everything(partition: str) -> None:
    one, same, other = (federate(toy(), partition, 4, fraction=0.5, seed=seed) for seed in (7, 7, 8))
    assert equal(one, same)
    assert one.shifts == same.shifts
    assert not equal(one, other)
    assert not np.array_equal(one.train[0], other.train[0])


def test_the_seed_decides_the_draw_as_well_as_the_pools() -> None:
    places = []
    for seed in (1, 2):
        federation = federate(toy(), "iid", 4, seed=seed)
        pool = np.sort(np.concatenate(federation.train))
        places.append(np.searchsorted(pool, federation.train[0]))
    assert not np.array_equal(places[0], places[1])


def test_pools_do_not_depend_on_partition_clients_or_fraction() -> None:
    one = federate(toy(), "iid", 3, seed=5)
    other = federate(toy(), "ics(1)", 8, fraction=0.5, seed=5)
    assert np.array_equal(one.validation, other.validation)
    assert np.array_equal(one.global_test, other.global_test)


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=10),
    ratio=st.sampled_from([(7, 1, 2), (0.7, 0.1, 0.2), (8, 0, 2), (1, 1, 1)]),
    seed=st.integers(0, 10**6),
)
def test_pools_hold_every_row_once_and_every_class_in_the_ratio(
    counts: list[int], ratio: tuple[float, float, float], seed: int
) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    pools = split_pools(y, ratio, np.random.default_rng(seed))
    assert np.array_equal(np.sort(np.concatenate(pools)), np.arange(len(y)))
    for pool, part in zip(pools, ratio, strict=True):
        share = part / sum(ratio)
        assert abs(len(pool) - share * len(y)) <= 1
        assert np.abs(np.bincount(y[pool], minlength=len(counts)) - share * np.array(counts)).max() < 2.01


def test_every_row_may_land_in_every_pool() -> None:
    y = np.zeros(10, np.int64)
    seen = [split_pools(y, (7, 1, 2), np.random.default_rng(seed)).validation[0] for seed in range(200)]
    assert set(seen) == set(range(10))


def test_clients_are_judged_on_their_own_rows_or_on_common_ones() -> None:
    local, common = federate(toy(), "pow", 4), federate(toy(), "dir(2)", 4)
    assert np.array_equal(local.test_rows(2), local.test[2])
    assert np.array_equal(common.test_rows(2), common.global_test)


def test_dirichlet_redraws_a_bounded_number_of_times() -> None:
    federation = federate(toy(400), "dir(0.1)", 8)
    assert min(map(len, (*federation.train, *federation.test))) > 0
    with pytest.raises(PartitionError, match=r"dir\(0.001\) leaves client .* \(100 plans were tried\)"):
        federate(toy(400), "dir(0.001)", 40)


def test_a_federation_survives_pickling() -> None:
    federation = federate(toy(), "ics(1)", 4)
    assert equal(federation, pickle.loads(pickle.dumps(federation)))


def test_warnings_of_the_plan_are_kept() -> None:
    assert "vary in 6 dimensions only" in federate(toy(), "bcs(0.5)", 4).warnings[0]


@dataclass(frozen=True)
class Careless:
    """A partition of one's own that draws something impossible."""

    drawn: list[Rows]

    def plan(self, request: Request, rng: np.random.Generator) -> Plan:
        return self

    def draw(self, rows: Rows, total: int, rng: np.random.Generator) -> list[Rows]:
        return self.drawn


@pytest.mark.parametrize(
    ("drawn", "message"),
    [
        ([np.array([1])], "one train part per client; got 1 for 2"),
        ([np.array([1]), np.array([], np.int64)], "the plan left client 1 none"),
        ([np.array([1, 2]), np.array([3])], "train and test share 3 base rows"),
    ],
)
def test_a_careless_plan_is_caught(drawn: list[Rows], message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        federate(toy(100), Careless(drawn), 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": 0}, "clients must be at least 1, got 0"),
        ({"clients": 500}, r"smaller of both pools is 200 of 1000 rows; 200 clients would do"),
        ({"fraction": 0.0}, "fraction must be above 0 and at most 1, got 0.0"),
        ({"fraction": 1.5}, "got 1.5"),
        ({"fraction": float("nan")}, "got nan"),
        ({"fraction": 1e-6}, "more rows or a larger fraction are needed"),
        ({"scale": 0.0}, "scale must be above 0 and at most 1, got 0.0"),
        (
            {"scale": 0.005, "clients": 9},
            r"fraction 1 at scale 0.005 of the smaller of both pools is 3 of 1000",
        ),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"ratio": (7, 3)}, r"three numbers, train : validation : test, .* got \(7, 3\)"),
        ({"ratio": (0, 1, 1)}, "only validation may be 0"),
        ({"ratio": (1, 1, -1)}, "three numbers"),
        ({"partition": "pow", "clients": 190}, r"rows would do, or at most \d+ clients"),
    ],
)
def test_impossible_requests_say_what_would_work(change: dict[str, Any], message: str) -> None:
    asked: dict[str, Any] = {"partition": "iid", "clients": 4, **change}
    with pytest.raises(PartitionError, match=message):
        federate(toy(), **asked)


def test_impossible_datasets() -> None:
    data = toy(100)
    with pytest.raises(PartitionError, match="toy: one label per input is needed; got 99 inputs and 100"):
        federate(Toy(data.x[1:], data.y, 4), "iid", 2)
    with pytest.raises(PartitionError, match="toy: labels must be 0 to 2, got 0 to 3"):
        federate(Toy(data.x, data.y, 3), "iid", 2)
    with pytest.raises(PartitionError, match="cla needs rows of every class, but toy has no row of class 4"):
        federate(Toy(data.x, data.y, 5), "cla", 2)
    with pytest.raises(PartitionError, match="more rows or a larger fraction are needed"):
        federate(Toy(data.x[:0], data.y[:0], 4), "iid", 2)


WIDE = """
import hashlib, numpy as np
from fedakd.federation import federate
class Wide:
    name, classes = "wide", 4
    x = np.random.default_rng(0).gamma(2.0, size=(12000, 500)) * np.linspace(1, 9, 500)
    y = np.arange(12000) % 4
    def examples(self, rows): raise NotImplementedError
parts = federate(Wide(), "ics(2)", 4, seed=0)
print(hashlib.sha256(b"".join(rows.tobytes() for rows in (*parts.train, *parts.test))).hexdigest())
"""


def test_rows_do_not_depend_on_the_number_of_threads() -> None:
    """Wide enough that products are split among threads; each number of threads in a process of its own."""
    found = set()
    for threads in ("1", "2"):
        counts = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
        command = [sys.executable, "-c", WIDE]
        found.add(subprocess.run(command, env=os.environ | counts, capture_output=True, check=True).stdout)
    assert len(found) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308])
@pytest.mark.parametrize("row", [0, 1024, 2999])
def test_inputs_that_are_no_finite_numbers_are_refused_with_their_place(value: float, row: int) -> None:
    dataset = toy(rows=3000)
    dataset.x[row, 4] = value
    place = rf"toy: inputs must be finite .* in row {row}, column 4 \(counted from 0\); fill in or leave out"
    with pytest.raises(PartitionError, match=place):
        federate(dataset, "iid", 3)
    images = replace(dataset, x=dataset.x.reshape(-1, 2, 3))
    with pytest.raises(PartitionError, match=rf"row {row}, column \(1, 1\)"):
        federate(images, "iid", 3)


def test_integers_and_large_numbers_are_inputs() -> None:
    dataset = toy(rows=300)
    dataset.x[7, 1] = -3e38
    federate(dataset, "iid", 3)
    federate(replace(dataset, x=np.full((300, 2), np.iinfo(np.int64).max)), "iid", 3)
