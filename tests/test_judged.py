"""The rows and weights that results are read with, and those a run is resumed with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedakd.data import load
from fedakd.drawn import contents, with_stored_rows
from fedakd.errors import PlanError
from fedakd.federation import federate
from fedakd.judged import SUFFIX, keep_judged, read_judged, write_judged


@pytest.mark.parametrize("partition", ["pow", "ics(1)", "dir(2)"])
def test_judged_rows_and_weights_are_read_without_the_data(partition: str, tmp_path: Path) -> None:
    federation = federate(load("digits"), partition, 4)
    path = tmp_path / f"federation{SUFFIX}"
    write_judged(federation, path)
    judged = read_judged(path)
    assert len(judged) == 4
    for client, (rows, weights) in enumerate(judged):
        expected = federation.test_weights(client)
        assert np.array_equal(rows, federation.test_rows(client))
        assert (weights is None) == (expected is None)
        if weights is not None and expected is not None:
            assert np.allclose(weights, expected, rtol=1e-6, atol=0)
            assert weights.sum() == pytest.approx(1, abs=1e-12)
    shared = partition != "pow"
    assert (judged[0][0] is judged[3][0]) == shared


def test_shared_rows_are_stored_once(tmp_path: Path) -> None:
    federation = federate(load("digits"), "ics(1)", 4)
    path = tmp_path / f"federation{SUFFIX}"
    write_judged(federation, path)
    pool = len(federation.global_test)
    assert path.stat().st_size < 5 * 4 * pool + 1500  # rows once and four times weights, four bytes each


def test_stored_rows_come_with_their_weights(tmp_path: Path) -> None:
    drawn, other = (federate(load("digits"), "ics(1)", 4, seed=seed) for seed in (0, 1))
    path = tmp_path / "rows"
    with_stored_rows(drawn, path)
    again = with_stored_rows(other, path)  # as if another processor had drawn others
    assert again.weights is not None
    assert drawn.weights is not None
    assert all(np.array_equal(a, b) for a, b in zip(again.weights, drawn.weights, strict=True))
    assert all(rows is again.global_test for rows in again.test)
    assert contents(again) == contents(drawn) != contents(other)


def test_the_checksum_depends_on_the_weights() -> None:
    federation = federate(load("digits"), "ics(1)", 4)
    other = federate(load("digits"), "ics(1.001)", 4)
    assert federation.weights is not None
    swapped = (federation.weights[1], federation.weights[0], *federation.weights[2:])
    assert contents(federation) != contents(replace(federation, weights=swapped))
    assert contents(federation) != contents(replace(federation, weights=None))
    assert contents(federation) != contents(other)


def test_a_file_of_other_rows_is_refused_and_one_of_the_same_is_kept(tmp_path):
    path = tmp_path / "rows.judged.safetensors"
    federation = federate(load("digits"), "ics(1)", 3, seed=0)
    keep_judged(federation, path)
    before = path.read_bytes()
    keep_judged(federation, path)
    assert path.read_bytes() == before
    for other in (federate(load("digits"), "ics(1)", 3, seed=1), federate(load("digits"), "pow", 3, seed=0)):
        with pytest.raises(PlanError, match="other test rows for client 0"):
            keep_judged(other, path)
    assert path.read_bytes() == before
