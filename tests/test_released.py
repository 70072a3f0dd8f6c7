"""The published code's protocol: what it does, and that it never passes for clean."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from fedakd.audit import audit, lines
from fedakd.errors import PartitionError
from fedakd.examples import Examples
from fedakd.federation import Federation
from fedakd.partition import power_law
from fedakd.partition.contract import Features, Labels, Rows
from fedakd.released import federate_released


@dataclass(frozen=True)
class Line:
    """Rows along one long axis, in random order; the last 200 are the official test rows."""

    x: Features
    y: Labels
    name: str = "line"
    classes: int = 2
    official_train: int = 1000

    def examples(self, rows: Rows) -> Examples:
        raise NotImplementedError


RNG = np.random.default_rng(0)
LONG = RNG.permutation(1200).astype(float)
LINE = Line(np.stack([LONG, RNG.standard_normal(1200)], axis=1), RNG.integers(0, 2, 1200))


def released(leak: bool, shifted: bool = True, clients: int = 10, scale: float = 1.0) -> Federation:
    return federate_released(LINE, "power", clients, seed=0, leak=leak, shifted=shifted, scale=scale)


def test_the_lower_half_along_the_first_component_is_sliced() -> None:
    federation = released(leak=True)
    assert [len(part) for part in federation.train] == power_law(500, 10)
    along = [LONG[part] for part in federation.train]
    assert all(one.max() < two.min() for one, two in pairwise(along))
    assert np.concatenate(along).max() < np.median(LONG[:1000]) + 1


def test_few_rows_are_a_random_share_of_that_half_not_its_lowest_part() -> None:
    whole, few = (released(leak=True, scale=scale) for scale in (1.0, 0.2))
    assert [len(part) for part in few.train] == power_law(100, 10)
    along = [LONG[part] for part in few.train]
    assert all(one.max() < two.min() for one, two in pairwise(along))
    assert set(np.concatenate(few.train)) < set(np.concatenate(whole.train))
    middles = [np.median(LONG[np.concatenate(one.train)]) for one in (whole, few)]
    assert middles[1] == pytest.approx(middles[0], rel=0.2)  # the lowest fifth's is a fifth of that


def test_official_test_rows_are_not_used() -> None:
    assert max(part.max() for part in released(leak=True).train) < 1000


def test_pow_is_a_random_half() -> None:
    rows = np.concatenate(released(leak=True, shifted=False).train)
    assert len(np.unique(rows)) == 500
    assert LONG[rows].max() > 1000


def test_leak_trains_on_every_test_row_and_the_audit_says_so() -> None:
    federation = released(leak=True)
    found = audit(federation)
    assert all(
        np.isin(test, train).all() for train, test in zip(federation.train, federation.test, strict=True)
    )
    assert found.shared["train/test"] == found.pools["test"].distinct > 0
    assert federation.leaky
    assert any("LEAKY BY DESIGN" in line for line in lines(found))
    assert any(line.startswith("LEAKY: train and validation share") for line in lines(found))


def test_without_leak_the_split_is_80_to_20_but_validation_still_overlaps() -> None:
    federation = released(leak=False)
    found = audit(federation)
    assert found.shared["train/test"] == 0
    assert found.shared["train/validation"] + found.shared["validation/test"] == len(federation.validation)
    for train, test, size in zip(federation.train, federation.test, power_law(500, 10), strict=True):
        assert len(train) + len(test) == size
        assert len(test) == pytest.approx(0.2 * size, abs=0.51)
    assert federation.leaky


def test_a_request_it_cannot_serve() -> None:
    with pytest.raises(PartitionError, match="each client needs 2 rows"):
        released(leak=True, clients=400)
    with pytest.raises(PartitionError, match="did you mean 'power'"):
        federate_released(LINE, "powr", 10, seed=0, leak=True)  # type: ignore[arg-type]
