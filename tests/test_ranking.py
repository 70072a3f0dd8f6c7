"""Who is best in a column, how often nobody should be, and ranks against scipy and published tables."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedakd.ranking import Standing, critical_difference, friedman, standings
from fedakd.statistics import compared

Columns = dict[str, dict[Any, float]]


@st.composite
def columns(draw: st.DrawFn) -> Columns:
    """Up to five methods over the same seeds, with ties, some scores undefined and some missing."""
    seeds = range(draw(st.integers(1, 9)))
    score = st.integers(100, 200).map(lambda hits: hits / 200) | st.just(math.nan)
    methods = "abcde"[: draw(st.integers(1, 5))]
    return {name: draw(st.dictionaries(st.sampled_from(seeds), score)) for name in methods}


def fresh(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def placed(scores: Columns, **options: Any) -> dict[str, str]:
    return {name: one.place for name, one in standings(scores, rng=fresh(), **options).items()}


def column(table: Any) -> Columns:
    """From methods by seeds."""
    return {f"m{k}": dict(enumerate(map(float, row))) for k, row in enumerate(table)}


def ahead(seeds: int = 3, methods: int = 4) -> Columns:
    """Methods 10 points apart, with noise of a tenth of a point; the first is the best."""
    noise = fresh(7).normal(0, 0.001, (methods, seeds))
    return column(0.9 - 0.1 * np.arange(methods)[:, None] + noise)


# Places -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [3, 5, 6, 8, 9, 20])
@pytest.mark.parametrize("methods", [2, 4, 11])
def test_a_method_far_ahead_of_all_is_best(seeds: int, methods: int) -> None:
    assert list(placed(ahead(seeds, methods)).values()) == ["best", *["behind"] * (methods - 1)]


@pytest.mark.parametrize("seeds", [1, 2, 3, 6, 12])
def test_of_two_identical_methods_none_is_best(seeds: int) -> None:
    scores = ahead(seeds, 3)
    twins = placed({"twin": scores["m0"], **scores})
    assert twins["twin"] == twins["m0"] == "tied"
    assert set(placed({"a": scores["m1"], "b": scores["m1"]}).values()) == {"tied"}


def test_a_leader_not_shown_to_be_better_ties_with_those_near_it_alone() -> None:
    scores = ahead(5, 3)
    near = {seed: value - 0.001 * (-1) ** seed for seed, value in scores["m0"].items()}
    assert placed({**scores, "near": near}) == {"m0": "tied", "m1": "behind", "m2": "behind", "near": "tied"}


@pytest.mark.parametrize("second", [{}, {0: math.nan}, {0: 0.1}, {0: 0.1, 1: math.nan, 7: 0.2}])
def test_too_few_pairs_never_make_best(second: dict[int, float]) -> None:
    places = placed({"a": {0: 0.9, 1: 0.91, 2: 0.89}, "b": second})
    assert places == ({"a": "tied", "b": "tied"} if 0.1 in second.values() else {"a": "only", "b": "unknown"})


def test_a_lucky_seed_leads_but_is_not_best_and_nobody_is_behind_it() -> None:
    assert set(placed({**ahead(), "lucky": {0: 0.99}}).values()) == {"tied"}


def test_whoever_is_excluded_is_shown_without_competing() -> None:
    scores = ahead()
    found = standings(scores, rng=fresh(), exclude={"m0"})
    assert [one.place for one in found.values()] == ["excluded", "best", "behind", "behind"]
    assert found["m0"].mean == pytest.approx(np.mean(list(scores["m0"].values())))
    assert math.isnan(found["m0"].p)
    rest = {name: own for name, own in scores.items() if name != "m0"}
    assert {name: found[name] for name in rest if name != "m1"} == {
        name: own for name, own in standings(rest, rng=fresh()).items() if name != "m1"
    }


def test_p_is_that_of_the_comparison_with_the_leader() -> None:
    scores = column(fresh(3).normal([[3], [2], [1], [0]], 1, (4, 5)))
    found = standings(scores, rng=fresh())
    leader = max(found, key=lambda name: found[name].mean)
    against = compared(scores, leader)
    assert math.isnan(found[leader].p)
    assert {name: one.p for name, one in found.items() if name != leader} == {
        name: one.adjusted for name, one in against.items()
    }


@given(columns())
def test_means_and_deviations_are_numpys_over_what_is_defined(scores: Columns) -> None:
    for name, one in standings(scores, rng=fresh()).items():
        known = [value for value in scores[name].values() if not math.isnan(value)]
        assert one.count == len(known)
        assert one.mean == pytest.approx(np.mean(known) if known else math.nan, nan_ok=True)
        assert one.std == pytest.approx(np.std(known, ddof=1) if len(known) > 1 else math.nan, nan_ok=True)
        assert math.isnan(one.low) == (len(known) < 3)
        assert (one.place == "unknown") == (not known)


@given(columns())
def test_best_means_that_everybody_else_is_behind(scores: Columns) -> None:
    places = [place for place in placed(scores).values() if place != "unknown"]
    assert places.count("best") <= 1
    assert places.count("behind") == len(places) - 1 if "best" in places else places.count("tied") != 1
    assert ("only" in places) == (len(places) == 1)


@given(columns(), st.randoms(use_true_random=False))
def test_the_order_of_keys_changes_nothing(scores: Columns, random: Any) -> None:
    shuffled = {name: dict(random.sample(list(own.items()), len(own))) for name, own in scores.items()}
    assert repr(standings(shuffled, rng=fresh())) == repr(standings(scores, rng=fresh()))


@given(columns(), st.sampled_from([-1.0, -0.3, 0.1, 1 / 3, 5.0]))
def test_adding_a_constant_changes_no_place(scores: Columns, constant: float) -> None:
    moved = {name: {key: value + constant for key, value in own.items()} for name, own in scores.items()}
    assert placed(moved) == placed(scores)


def test_equal_scores_have_equal_standings() -> None:
    one = standings({"a": ahead()["m0"], "b": ahead()["m0"]}, rng=fresh())
    assert (one["a"].low, one["a"].high) == (one["b"].low, one["b"].high)


# How often somebody is best who is not ------------------------------------------------------------


def rate(tables: Any, place: str) -> float:
    """The share of columns in which somebody has the place."""
    return float(np.mean([place in placed(column(table)).values() for table in tables]))


def test_among_eleven_equal_methods_nobody_is_best() -> None:
    """Measured on 4,000 columns of 3 seeds: best in none, somebody behind in 9.5 %, as is said there."""
    tables = fresh(1).standard_normal((200, 11, 3))
    assert rate(tables, "best") == 0
    assert 0.05 < rate(tables, "behind") < 0.15


@pytest.mark.parametrize(("seeds", "behind"), [(3, 0), (3, 2), (9, 2)])
def test_of_two_equal_methods_one_is_best_in_one_column_of_twenty(seeds: int, behind: int) -> None:
    """The least conservative case: only the nearest rival counts, whoever else is far behind."""
    offsets = np.array([0, 0, *[-1000.0 - 100 * k for k in range(behind)]])
    tables = fresh(2).standard_normal((400, 2 + behind, seeds)) + offsets[:, None]
    found = ["best" in placed(column(table)).values() for table in tables]
    test = stats.ttest_rel if seeds < 6 else stats.wilcoxon
    assert found == [bool(test(table[0], table[1]).pvalue < 0.05) for table in tables]
    assert np.mean(found) == pytest.approx(0.045, abs=0.025)


# Ranks ------------------------------------------------------------------------------------------


@given(st.integers(3, 6), st.integers(2, 8), st.integers(2, 30), st.integers(0, 1000))
def test_friedman_is_scipys(methods: int, blocks: int, levels: int, seed: int) -> None:
    table = fresh(seed).integers(levels, size=(methods, blocks)) / levels
    found = friedman(column(table))
    assert found is not None
    ranks = stats.rankdata(-table, axis=0).mean(1)
    assert [found.ranks[f"m{k}"] for k in range(methods)] == pytest.approx(ranks)
    assert list(found.ranks.values()) == sorted(ranks)
    if np.ptp(table, axis=0).any():
        assert (found.chi2, found.p) == pytest.approx(tuple(stats.friedmanchisquare(*table)))
    else:
        assert (found.chi2, found.p) == (0, 1)


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_the_published_one(methods: int, q: float) -> None:
    """Table 5(a) of Demšar, JMLR 7 (2006)."""
    expected = q * math.sqrt(methods * (methods + 1) / (6 * 14))
    assert critical_difference(methods, 14) == pytest.approx(expected, rel=5e-4)


def test_ranks_are_over_blocks_that_all_methods_have() -> None:
    keys = list(product(("bcs", "ics"), (0, 1)))
    whole = {name: dict(zip(keys, own.values(), strict=True)) for name, own in ahead(4, 3).items()}
    lacking = {**whole["m1"], keys[0]: math.nan}
    found = friedman({**whole, "m1": lacking, "failed": {keys[0]: math.nan}})
    assert found is not None
    assert found.blocks == 3
    assert found.ranks == {"m0": 1, "m1": 2, "m2": 3}


def test_two_methods_or_one_block_have_no_friedman_test() -> None:
    assert friedman(ahead(5, 2)) is None
    assert friedman(ahead(1, 5)) is None
    assert friedman({}) is None
    assert friedman({"a": {0: 1.0, 1: 1.0}, "b": {1: 1.0, 2: 1.0}, "c": {2: 1.0, 0: 1.0}}) is None


def test_noise_in_the_last_digit_breaks_no_tie() -> None:
    found = friedman(column([[0.1 + 0.2, 0.7], [0.3, 0.7], [0.3, 0.1 * 7]]))
    assert found is not None
    assert set(found.ranks.values()) == {2.0}
    assert (found.p, found.groups) == (1, (("m0", "m1", "m2"),))


@settings(max_examples=50)
@given(st.integers(3, 8), st.integers(2, 40), st.integers(0, 1000))
def test_groups_are_the_maximal_sets_of_ranks_within_the_critical_difference(
    methods: int, blocks: int, seed: int
) -> None:
    found = friedman(column(fresh(seed).standard_normal((methods, blocks)) + np.arange(methods)[:, None] / 2))
    assert found is not None
    near = {
        (a, b): abs(found.ranks[a] - found.ranks[b]) < found.critical_difference
        for a, b in product(found.ranks, repeat=2)
    }
    for group in found.groups:
        assert all(near[a, b] for a, b in product(group, repeat=2))
        outside = [name for name in found.ranks if name not in group]
        assert not any(all(near[name, one] for one in group) for name in outside)
    together = {(a, b) for group in found.groups for a, b in product(group, repeat=2) if a != b}
    assert together == {pair for pair, close in near.items() if close and pair[0] != pair[1]}


def test_a_standing_says_what_the_table_shows() -> None:
    found = standings({"a": {0: 0.5, 1: 0.6, 2: 0.7}}, rng=fresh())["a"]
    assert found == Standing(
        pytest.approx(0.6), pytest.approx(0.1), 3, found.low, found.high, found.p, "only"
    )
    assert 0.5 <= found.low < 0.6 < found.high <= 0.7
