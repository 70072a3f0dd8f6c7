"""What clients are judged on under a generated shift: the whole test pool, weighted, and enough of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fedakd.audit import audit
from fedakd.errors import PartitionError
from fedakd.examples import Examples
from fedakd.federation import Federation, federate
from fedakd.partition import GaussianShift, power_law
from fedakd.partition.contract import Plan, Request, Rows, Weights


class Lumps:
    """Classes that are lumps with exponential tails, along which few rows carry a shift."""

    name, classes = "lumps", 4

    def __init__(self, rows: int = 6000, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, 4, rows)
        self.x = 2 * rng.standard_normal((4, 12))[self.y] + rng.exponential(size=(rows, 12))

    def examples(self, rows: Rows) -> Examples:
        raise NotImplementedError


DATA = Lumps()


def shifted(c: float, scale: float = 1.0, seed: int = 1, **fields: Any) -> Federation:
    partition = GaussianShift(c, **{"sizes": "power", "dims": 5, **fields})
    return federate(DATA, partition, 6, scale=scale, seed=seed)


def kish(federation: Federation, client: int) -> float:
    """By hand, from the rows and their weights if there are any."""
    rows, weights = federation.test[client], getattr(federation, "weights", None)
    totals: dict[int, float] = {}
    for place, row in enumerate(rows.tolist()):
        totals[row] = totals.get(row, 0.0) + (1.0 if weights is None else weights[client][place])
    return sum(totals.values()) ** 2 / sum(total**2 for total in totals.values())


def needed(federation: Federation) -> list[float]:
    return [min(100, size / 2) for size in power_law(len(federation.global_test), federation.clients)]


# Enough effective test rows


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_every_client_keeps_enough_effective_test_rows(scale: float, seed: int) -> None:
    federation = shifted(5.0, scale, seed)
    for client, least in enumerate(needed(federation)):
        assert kish(federation, client) >= 0.999 * least
        assert federation.effective_test_rows(client) == pytest.approx(kish(federation, client))


@pytest.mark.parametrize("fields", [{"kl": 2.0, "c": None}, {"mode": "ratio"}, {"c_cov": 0.9}])
def test_other_requests_obey_the_same_rule(fields: dict[str, Any]) -> None:
    federation = shifted(**{"c": 1.0, "scale": 0.1, **fields})
    assert all(kish(federation, k) >= 0.999 * least for k, least in enumerate(needed(federation)))


def test_the_plan_does_not_depend_on_scale() -> None:
    """A smaller training part must not weaken the guard."""
    for seed in (0, 1, 2):
        whole, tenth = shifted(5.0, seed=seed), shifted(5.0, 0.1, seed=seed)
        assert whole.shifts is not None
        assert tenth.shifts is not None
        same = (
            "tried",
            "reach",
            "furthest",
            "realised",
            "effective_size",
            "effective_share",
            "test_realised",
        )
        for field in same:
            found = [[getattr(shift, field) for shift in own.shifts or ()] for own in (whole, tenth)]
            assert found[0] == found[1], field
        assert whole.warnings == tenth.warnings
        assert len(tenth.train[0]) == pytest.approx(len(whole.train[0]) / 10, abs=1)


def test_what_is_refused_at_full_size_is_refused_at_a_tenth() -> None:
    refusals = []
    for scale in (1.0, 0.1):
        with pytest.raises(PartitionError, match="effective test rows") as caught:
            shifted(12.0, scale)
        refusals.append(str(caught.value))
    assert refusals[0] == refusals[1]


@pytest.mark.parametrize(("asked", "name"), [({"c": 40.0}, "c"), ({"c": None, "kl": 60.0}, "kl")])
def test_a_refusal_tells_the_largest_request_that_all_clients_can_carry(
    asked: dict[str, Any], name: str
) -> None:
    with pytest.raises(PartitionError, match=r"at least [\d.]+ effective test rows") as caught:
        shifted(**asked, directions=4)
    told = re.search(rf"; {name}=([\d.]+) is reached by all clients", str(caught.value))
    assert told is not None
    largest = float(told[1])
    federation = shifted(**{**asked, name: largest}, directions=4)
    assert all(kish(federation, k) >= 0.999 * least for k, least in enumerate(needed(federation)))
    with pytest.raises(PartitionError, match="cannot be shifted"):
        shifted(**{**asked, name: 1.01 * largest}, directions=4)


def test_force_accepts_few_test_rows_and_marks_them() -> None:
    federation = shifted(20.0, force=True, directions=4)
    few = [k for k, least in enumerate(needed(federation)) if kish(federation, k) < least]
    assert few
    (warning,) = [text for text in federation.warnings if "effective test rows" in text]
    assert warning.startswith(f"clients {', '.join(map(str, few))}: judged on few effective test rows")
    assert [k for k, client in enumerate(audit(federation).clients) if client.few_test_rows] == few


def test_natural_and_unshifted_partitions_are_never_refused_for_size() -> None:
    federation = federate(Lumps(60), "pow", 3)
    assert federation.weights is None
    assert [federation.effective_test_rows(k) for k in range(3)] == [len(own) for own in federation.test]


# Weights over the whole pool


def test_clients_share_the_test_pool_and_weigh_it_by_their_tilts() -> None:
    federation = shifted(3.0)
    assert federation.weights is not None
    assert all(rows is federation.global_test for rows in federation.test)
    for client, shift in enumerate(federation.shifts or ()):
        weights = federation.test_weights(client)
        assert weights is not None
        assert weights.sum() == pytest.approx(1)
        assert shift.test_effective == pytest.approx(kish(federation, client))
    common = replace(federation, evaluation="global")
    assert common.test_weights(0) is None
    assert common.effective_test_rows(0) == len(federation.global_test)


def test_weighted_means_are_those_of_many_draws() -> None:
    """A draw by the same weights, with replacement, has the weighted mean as its expectation."""
    partition = GaussianShift(2.0, dims=5)
    rows = np.arange(6000)
    request = Request(DATA.x, DATA.y, rows[:4200], rows[4200:], 2, 4200, 4200, 1800)
    plan = partition.plan(request, np.random.default_rng(0))
    drawn = plan.draw(rows[4200:], 400_000, np.random.default_rng(1))
    for weights, part in zip(plan.weigh(rows[4200:], 1800), drawn, strict=True):
        assert np.allclose(weights @ DATA.x[4200:], DATA.x[part].mean(axis=0), atol=0.03)


def test_without_replacement_weights_are_the_chances_of_a_draw_of_the_nominal_size() -> None:
    federation = shifted(1.0, replacement=False)
    for client, size in enumerate(power_law(1200, 6)):
        weights = federation.test_weights(client)
        assert weights is not None
        assert weights.max() <= 1 / size + 1e-9  # no row comes twice
        assert federation.effective_test_rows(client) >= size


@dataclass(frozen=True)
class Careless:
    """A partition of one's own that weighs rows wrongly."""

    weights: tuple[Weights, ...]

    def plan(self, request: Request, rng: np.random.Generator) -> Plan:
        return self

    def draw(self, rows: Rows, total: int, rng: np.random.Generator) -> list[Rows]:
        return np.array_split(rows, 2)

    def weigh(self, rows: Rows, total: int) -> list[Weights]:
        return list(self.weights)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((np.full(12, 1 / 12),), r"weigh all 12 test rows for each of 2 clients; got \[\(12,\)\]"),
        ((np.full(12, 1 / 12), np.full(11, 1 / 11)), r"got \[\(12,\), \(11,\)\]"),
        ((np.full(12, 1 / 12), np.full(12, 1.0)), "client 1's have sum 12"),
        ((np.full(12, 1 / 12), np.array([-1.0, 2.0, *[0.0] * 10])), "the smallest is -1"),
    ],
)
def test_careless_weights_are_caught(weights: tuple[Weights, ...], message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        federate(Lumps(60), Careless(weights), 2)
