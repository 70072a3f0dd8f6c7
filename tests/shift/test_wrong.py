"""Right and wrong rows: the control finds what size alone explains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedakd.errors import DataError
from fedakd.gaussians import kl, shrunk
from fedakd.shift.wrong import compared, divergences, verdict

SIZES = (900, 500, 300, 400)


def clients(rng, shifted=0.0, share=0.08, wrong_shift=0.0):
    """Gaussian rows of clients, each with a direction of its own; wrong ones may be shifted further."""
    features, marks = [], []
    for k, n in enumerate(SIZES):
        right = rng.random(n) > share
        away = np.eye(5)[k]
        z = rng.normal(size=(n, 5)) + shifted * away + wrong_shift * away * ~right[:, None]
        features.append(z)
        marks.append(right)
    return features, marks


def found_of(seed=0, repeats=60, **how):
    rng = np.random.default_rng(seed)
    features, marks = clients(rng, **how)
    return compared([f"c{k}" for k in range(4)], features, marks, rng, repeats=repeats), features, marks


def test_few_wrong_rows_are_far_by_themselves_and_the_control_says_so():
    found, _, _ = found_of(shifted=0.5, share=0.05)
    assert found.difference > 0  # what the paper takes for shift
    assert found.p > 0.05
    assert found.farther <= 1
    assert verdict(found).startswith("The claim does not survive")


def test_wrong_rows_that_are_nearer_are_no_sign_of_shift():
    found, _, _ = found_of(shifted=2.0, wrong_shift=-2.0, share=0.4)
    assert found.difference < 0
    assert verdict(found).startswith("The claim does not hold here")


def test_a_claim_that_is_true_survives():
    found, _, _ = found_of(wrong_shift=2.0)
    assert found.p < 0.05
    assert found.farther == 4
    assert found.difference > found.chance.high
    assert found.nearer > 2
    assert found.left < 0.5
    assert verdict(found).startswith("The claim survives. ")


def test_right_rows_that_are_shifted_too_are_told():
    found, _, _ = found_of(shifted=1.5, wrong_shift=2.0, share=0.05)
    assert found.p < 0.05
    assert found.left > 0.5
    assert verdict(found).startswith("The claim survives in part")


def test_too_few_wrong_rows_are_refused():
    rng = np.random.default_rng(0)
    features, _ = clients(rng)
    with pytest.raises(
        DataError, match=r"at least two clients with 3 rows right and 3 wrong .* got 0; fewer rounds"
    ):
        compared(list("abcd"), features, [np.ones(n, dtype=bool) for n in SIZES], rng)


@pytest.mark.slow
def test_of_random_marks_one_in_twenty_is_taken_for_a_finding():
    ps = [found_of(seed, repeats=19, shifted=0.3)[0].p for seed in range(30)]
    assert sum(p <= 0.05 for p in ps) <= 5
    assert np.mean(ps) == pytest.approx(0.5, abs=0.17)


def test_divergences_are_to_everybodys_rows_of_the_same_side():
    found, features, marks = found_of()
    pools = {
        side: shrunk(np.concatenate([z[own == side] for z, own in zip(features, marks, strict=True)]))
        for side in (True, False)
    }
    for k, one in enumerate(found.clients):
        assert one.kl_right == pytest.approx(kl(shrunk(features[k][marks[k]]), pools[True]))
        assert one.kl_wrong == pytest.approx(kl(shrunk(features[k][~marks[k]]), pools[False]))
        assert (one.right, one.wrong) == (marks[k].sum(), (~marks[k]).sum())
    assert divergences(features, marks)[0] == pytest.approx([one.kl_right for one in found.clients])


def test_one_client_of_two_wrong_rows_does_not_decide_for_all():
    rng = np.random.default_rng(0)
    features, marks = clients(rng, wrong_shift=2.0)
    marks[2] = np.arange(SIZES[2]) > 1
    found = compared(["a", "b", "c", "d"], features, marks, rng, repeats=40)
    assert [one.name for one in found.clients] == ["a", "b", "d"]
    assert np.isfinite(found.difference)


def test_wrong_rows_nearer_than_right_ones_never_let_the_claim_survive_whole():
    found, _, _ = found_of(wrong_shift=2.0)
    assert "yet not than right ones" in verdict(replace(found, difference=-0.3, p=0.01))


def test_clients_without_wrong_rows_are_left_out():
    rng = np.random.default_rng(0)
    features, marks = clients(rng)
    marks[1] = np.ones(SIZES[1], dtype=bool)
    found = compared(["a", "b", "c", "d"], features, marks, rng, repeats=20)
    assert [one.name for one in found.clients] == ["a", "c", "d"]
