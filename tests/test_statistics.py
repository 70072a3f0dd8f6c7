"""Paired tests, intervals and power against scipy, brute force and simulation, and the laws they obey."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedakd.statistics import Paired, bootstrap_mean, compared, detectable, detectable_line, holm, paired

# Average accuracies as a comparison stores them: three settings by three seeds, without ties of differences.
KEYS = list(product(("bcs(2)", "ics(5)", "pow"), (0, 1, 2)))
STORED = {
    "standalone": [0.7012, 0.6934, 0.7105, 0.6420, 0.6533, 0.6391, 0.7441, 0.7390, 0.7502],
    "fedavg": [0.7193, 0.7048, 0.7260, 0.6487, 0.6511, 0.6498, 0.7469, 0.7433, 0.7519],
    "fedakd": [0.7331, 0.7169, 0.7352, 0.6702, 0.6795, 0.6648, 0.7558, 0.7402, 0.7637],
    "cffl": [0.6871, 0.6910, 0.7024, 0.6518, 0.6406, 0.6377, 0.7411, 0.7402, 0.7388],
}
SCORES = {name: dict(zip(KEYS, values, strict=True)) for name, values in STORED.items()}

grid = st.integers(0, 200).map(lambda hits: hits / 200)
few = st.integers(-4, 4).map(lambda rows: rows / 100)  # differences with many ties and zeros


def by_seed(values: Any) -> dict[int, float]:
    return dict(enumerate(np.asarray(values, float).tolist()))


def against_zero(differences: Any) -> Paired:
    return paired(by_seed(differences), by_seed(np.zeros(len(differences))))


def signed_ranks(differences: list[float]) -> float:
    """Two-sided p of Pratt's signed ranks, by writing out all signs."""
    d = np.array(differences)
    ranks = stats.rankdata(abs(d))[d != 0]
    seen = abs((np.sign(d[d != 0]) * ranks).sum())
    signs = np.array(list(product((-1, 1), repeat=len(ranks))))
    return float((abs(signs @ ranks) >= seen - 1e-9).mean())


# One pair of methods ----------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [2, 3, 4, 5])
def test_few_pairs_are_scipys_t_test(seeds: int) -> None:
    a, b = STORED["fedakd"][:seeds], STORED["fedavg"][:seeds]
    found, theirs = paired(by_seed(a), by_seed(b)), stats.ttest_rel(a, b)
    interval = theirs.confidence_interval(0.95)
    assert (found.test, found.n) == ("t", seeds)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-8)
    assert found.difference == pytest.approx(np.mean(a) - np.mean(b))
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-8)


@pytest.mark.parametrize("other", ["standalone", "fedavg", "cffl"])
def test_six_pairs_or_more_are_scipys_exact_wilcoxon(other: str) -> None:
    for pairs in (6, 7, 8, 9):
        a, b = STORED["fedakd"][:pairs], STORED[other][:pairs]
        found = paired(by_seed(a), by_seed(b))
        assert found.test == "wilcoxon"
        assert found.p == pytest.approx(stats.wilcoxon(np.subtract(a, b), method="exact").pvalue)


def test_many_pairs_are_scipys_exact_wilcoxon() -> None:
    for seed in range(20):
        d = np.random.default_rng(seed).normal(0.3, 1, 36)
        assert against_zero(d).p == pytest.approx(stats.wilcoxon(d, method="exact").pvalue, rel=1e-9)


def test_ties_and_zeros_are_scipys_pratt_over_all_signs() -> None:
    d = [0.03, 0.01, 0.01, 0.0, -0.01, 0.02, 0.02, 0.0]
    theirs = stats.wilcoxon(
        np.array(d), zero_method="pratt", method=stats.PermutationMethod(n_resamples=10**4)
    )
    assert against_zero(d).p == pytest.approx(theirs.pvalue)


@given(st.lists(few, min_size=6, max_size=9))
def test_ties_and_zeros_are_exact(differences: list[float]) -> None:
    assert against_zero(differences).p == pytest.approx(signed_ranks(differences))


def test_with_many_pairs_and_ties_scipys_approximation_is_near() -> None:
    for seed in range(20):
        d = np.round(np.random.default_rng(seed).normal(0.3, 1, 36), 1)
        theirs = stats.wilcoxon(d, zero_method="pratt", method="asymptotic", correction=True)
        assert against_zero(d).p == pytest.approx(theirs.pvalue, abs=0.01)


def test_a_gain_where_there_was_none_never_makes_signed_ranks_less_sure() -> None:
    before = against_zero([0, -4, -3, -2, 5, 6, 7])  # zeros left out before ranking: 0.4375, then 0.46875
    after = against_zero([1, -4, -3, -2, 5, 6, 7])
    assert after.p <= before.p


@given(st.lists(grid, min_size=2, max_size=12), st.data())
def test_swapping_the_methods_turns_the_difference_and_keeps_p(
    values: list[float], data: st.DataObject
) -> None:
    others = data.draw(st.lists(grid, min_size=len(values), max_size=len(values)))
    one, other = paired(by_seed(values), by_seed(others)), paired(by_seed(others), by_seed(values))
    assert (one.p, one.n, one.test) == (other.p, other.n, other.test)
    assert (one.difference, one.favours) == (-other.difference, -other.favours)
    assert 0 <= one.p <= 1
    assert one.better == other.worse


@given(st.lists(grid, max_size=12))
def test_a_method_does_not_differ_from_itself(values: list[float]) -> None:
    found = paired(by_seed(values), by_seed(values))
    assert (found.n, found.favours) == (len(values), 0)
    assert found.p == 1 if len(values) > 1 else math.isnan(found.p) and found.test == "none"


@pytest.mark.parametrize("pairs", [2, 3, 5, 6, 10])
def test_equal_differences_show_no_more_than_equal_signs(pairs: int) -> None:
    base = np.linspace(0.6, 0.7, pairs)
    found = paired(by_seed(base + 0.1), by_seed(base))  # equal up to rounding only
    assert found.p == pytest.approx(2.0 ** (1 - pairs))
    assert found.difference == pytest.approx(0.1)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert found.better == (pairs >= 6)


def test_only_keys_that_both_have_with_finite_scores_count() -> None:
    a = {0: 0.7, 1: 0.8, 2: 0.9, 3: math.nan, 4: 0.1, 6: math.inf}
    b = {1: 0.7, 0: 0.65, 2: 0.7, 3: 0.2, 5: 0.9, 6: 0.3}
    theirs = stats.ttest_rel([0.7, 0.8, 0.9], [0.65, 0.7, 0.7])
    found = paired(a, b)
    assert found.n == 3
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-8)
    assert paired(a, {5: 0.1}).n == 0
    assert math.isnan(paired(a, {5: 0.1}).difference)


def test_ranks_may_favour_whom_the_mean_does_not_and_then_nobody_is_better() -> None:
    found = against_zero([1.0, 1.1, 1.2, *(-0.01 - 0.001 * np.arange(24))])
    assert found.p < 0.05
    assert (found.difference > 0, found.favours) == (True, -1)
    assert not found.better
    assert not found.worse


def test_more_comparisons_ask_for_more_pairs_before_ranks_are_used() -> None:
    """Ranks of eight pairs could never be significant beside nine others: p is at least 1/128."""
    eight = by_seed(np.random.default_rng(0).normal(5, 1, 8))
    zero = by_seed(np.zeros(8))
    assert [paired(eight, zero, comparisons=m).test for m in (1, 6, 7, 10)] == [
        "wilcoxon",
        "wilcoxon",
        "t",
        "t",
    ]
    assert paired(eight, zero, comparisons=10).p < 0.005 < paired(eight, zero).p


# Many comparisons -------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1) | st.just(math.nan), max_size=12))
def test_holm_rejects_what_the_step_down_procedure_rejects(ps: list[float]) -> None:
    adjusted = holm(ps)
    assert [math.isnan(p) for p in ps] == [math.isnan(p) for p in adjusted]
    known = sorted(p for p in ps if not math.isnan(p))
    for level in (0.01, 0.05, 0.3, 0.99):
        kept = [place for place, p in enumerate(known) if p * (len(known) - place) > level]
        rejected = known[: kept[0]] if kept else known
        assert sorted(p for p, own in zip(ps, adjusted, strict=True) if own <= level) == rejected
    assert all(raw <= own <= 1 for raw, own in zip(ps, adjusted, strict=True) if not math.isnan(raw))


def test_every_method_is_compared_with_the_reference_at_a_corrected_level() -> None:
    found = compared(SCORES, "fedavg")
    alone = {name: paired(SCORES[name], SCORES["fedavg"]) for name in ("standalone", "fedakd", "cffl")}
    assert list(found) == list(alone)
    assert {name: one.p for name, one in found.items()} == {name: one.p for name, one in alone.items()}
    assert [one.adjusted for one in found.values()] == holm([one.p for one in alone.values()])
    assert [one.better for one in found.values()] == [False, True, False]
    assert [one.worse for one in found.values()] == [True, False, True]


def test_a_method_that_cannot_be_compared_does_not_count() -> None:
    without, empty = compared(SCORES, "fedavg"), {KEYS[0]: 0.9, KEYS[1]: math.nan}
    found = compared({**SCORES, "failed": empty}, "fedavg")
    assert math.isnan(found["failed"].adjusted)
    assert not found["failed"].better
    assert {name: found[name] for name in without} == without


def test_a_reference_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="'fedsac'"):
        compared(SCORES, "fedsac")


# Intervals --------------------------------------------------------------------------------------


def test_bootstrap_intervals_cover_what_is_said_of_them() -> None:
    rng = np.random.default_rng(1)
    for n, share in ((3, 0.75), (5, 0.92), (10, 0.95)):
        ends = np.array(
            [bootstrap_mean(values, rng=rng) for values in rng.standard_normal((1000, n)).tolist()]
        )
        assert np.mean((ends[:, 0] <= 0) & (ends[:, 1] >= 0)) == pytest.approx(share, abs=0.03)


def test_bootstrap_needs_three_values_and_sees_neither_nan_nor_order() -> None:
    values = STORED["fedakd"]
    ends = bootstrap_mean(values, rng=np.random.default_rng(0))
    shuffled = [math.nan, *reversed(values), math.inf]
    assert bootstrap_mean(shuffled, rng=np.random.default_rng(0)) == ends
    assert min(values) < ends[0] < np.mean(values) < ends[1] < max(values)
    assert all(map(math.isnan, bootstrap_mean([0.1, 0.2, math.nan], rng=np.random.default_rng(0))))


# What could have been found ---------------------------------------------------------------------


@pytest.mark.parametrize(("pairs", "power"), [(2, 0.8), (3, 0.8), (5, 0.8), (9, 0.5), (27, 0.95)])
def test_a_detectable_difference_is_found_as_often_as_promised(pairs: int, power: float) -> None:
    true = detectable(2.0, pairs, power=power)
    drawn = np.random.default_rng(pairs).normal(true, 2.0, (20_000, pairs))
    found = stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(power, abs=0.012)


def test_more_pairs_less_noise_and_less_power_make_smaller_differences_detectable() -> None:
    found = [detectable(1.0, n) for n in (2, 3, 5, 10, 100, 1000)]
    assert found == sorted(found, reverse=True)
    assert detectable(3.0, 5) == pytest.approx(3 * detectable(1.0, 5))
    assert detectable(1.0, 5, power=0.5) < detectable(1.0, 5) < detectable(1.0, 5, level=0.005)
    assert detectable(0.0, 5) == 0
    assert math.isnan(detectable(1.0, 1))
    assert math.isnan(detectable(math.nan, 5))


def test_the_line_tells_the_number_that_detectable_tells() -> None:
    a = {0: 0.70, 1: 0.72, 2: 0.74}
    b = {0: 0.70, 1: 0.71, 2: 0.72}  # differences 0, 1 and 2 points: a deviation of 1 point
    line = detectable_line({"a": a, "b": b, "failed": {}}, "points", per_unit=100)
    assert "With 3 seeds" in line
    assert "paired differences of 1.0 points" in line
    assert f"true differences of {detectable(1.0, 3):.1f} points or more" in line
    assert "80 of 100 repetitions." in line, "one comparison needs no correction"
    many = detectable_line({"a": a, "b": b}, "points", per_unit=100, comparisons=10)
    strict = detectable(1.0, 3, level=0.005)
    assert f"80 of 100 repetitions; {strict:.0f} points if that must outlast the correction for 10" in many


def test_the_line_takes_the_median_pair_and_leaves_out_who_does_not_compete() -> None:
    scores = {"a": by_seed([0, 0, 0]), "b": by_seed([0, 1, 2]), "c": by_seed([0, 3, 6])}  # deviations 1, 2, 3
    wild = {**scores, "wild": by_seed([9, 0, 90])}
    assert "differences of 2.0 points" in detectable_line(scores, "points")
    assert detectable_line(wild, "points", exclude={"wild"}) == detectable_line(scores, "points")
    assert detectable_line(wild, "points") != detectable_line(scores, "points")


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({}, "No two methods have two seeds in common"),
        ({"a": {0: 0.1}, "b": {0: 0.2}}, "No two methods have two seeds in common"),
        ({"a": by_seed([1, 2]), "b": by_seed([1, 2])}, "cannot be told"),
    ],
)
def test_the_line_says_when_nothing_can_be_said(scores: dict[str, dict[int, float]], words: str) -> None:
    assert words in detectable_line(scores, "points")


def test_importing_does_not_import_scipy() -> None:
    code = "import sys, fedakd.fairness; before = 'scipy' in sys.modules; import fedakd.ranking;"
    check = f"{code} assert before or 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)
