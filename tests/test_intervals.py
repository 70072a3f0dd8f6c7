"""Intervals of gains against scipy and closed forms, and the laws they obey."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedakd.intervals import Paired, client_interval, gain_interval, row_interval, seed_interval


def paired(wins: int, losses: int, rows: int, first: int = 0) -> Paired:
    """Equal weights; the models agree on the rows that are neither wins nor losses."""
    place = np.arange(rows)
    return Paired(first + place, place >= wins, place < rows - losses, np.full(rows, 1 / rows))


def drawn(rng: np.random.Generator, rows: int, first: int = 0) -> Paired:
    weights = rng.exponential(size=rows)
    before, after = rng.random((2, rows)) < 0.7
    return Paired(first + np.arange(rows), before, after, weights / weights.sum())


def width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]


# a client ---------------------------------------------------------------------------------------


def test_a_gain_is_the_difference_of_weighted_accuracies() -> None:
    pair = drawn(np.random.default_rng(0), 50)
    before, after = (np.average(own, weights=pair.weights) for own in (pair.before, pair.after))
    assert pair.gain == pytest.approx(after - before)


def test_effective_rows_are_kishs_by_hand() -> None:
    weights = np.array([0.5, 0.25, 0.125, 0.125])
    right = np.ones(4, bool)
    assert Paired(np.arange(4), right, right, weights).effective == pytest.approx(64 / 22)
    repeated = Paired(np.array([7, 3, 3, 3]), right, right, weights)  # row 3 has 0.5 in all
    assert repeated.effective == pytest.approx(2)
    assert paired(0, 0, 40).effective == pytest.approx(40)


@pytest.mark.parametrize(("wins", "losses", "rows"), [(9, 4, 100), (0, 0, 15), (60, 20, 1400)])
def test_with_equal_weights_it_is_bonett_and_prices_interval(wins: int, losses: int, rows: int) -> None:
    up, down = (wins + 1) / (rows + 2), (losses + 1) / (rows + 2)
    error = math.sqrt((up + down - (up - down) ** 2) / (rows + 2))
    expected = stats.t.interval(0.95, rows + 1, loc=up - down, scale=error)
    assert gain_interval(paired(wins, losses, rows)) == pytest.approx(expected)


@pytest.mark.parametrize("wins", range(0, 41, 4))
def test_it_agrees_with_the_exact_sign_test(wins: int) -> None:
    """Of 40 rows on which models differ; near 0.05 the two may disagree."""
    p = stats.binomtest(wins, 40).pvalue
    low, high = gain_interval(paired(wins, 40 - wins, 400))
    if not 0.02 < p < 0.10:
        assert (low > 0 or high < 0) == (p < 0.05)


def test_weight_that_sits_on_four_rows_counts_as_four_rows() -> None:
    """Of 64 distinct rows as many are won as of four, so the interval is about as wide as that of four."""
    weights = np.full(64, 0.001 / 60)
    weights[:4] = 0.999 / 4
    after = np.ones(64, bool)
    after[0] = False
    concentrated = Paired(np.arange(64), np.ones(64, bool), after, weights)
    assert concentrated.effective == pytest.approx(4, abs=0.01)
    few, many = paired(0, 1, 4), paired(0, 16, 64)
    assert concentrated.gain == pytest.approx(few.gain, abs=0.001)
    assert width(gain_interval(concentrated)) == pytest.approx(width(gain_interval(few)), rel=0.01)
    assert width(gain_interval(concentrated)) > 2.5 * width(gain_interval(many))


def test_a_row_drawn_twice_is_one_row_of_twice_the_weight() -> None:
    rng = np.random.default_rng(1)
    pair = drawn(rng, 30)
    halves = Paired(
        np.tile(pair.rows, 2), np.tile(pair.before, 2), np.tile(pair.after, 2), np.tile(pair.weights / 2, 2)
    )
    assert gain_interval(halves) == pytest.approx(gain_interval(pair))


def test_outcomes_that_depend_on_the_weights_widen_the_interval() -> None:
    """Kish's number alone does not see where the models differ."""
    weights = np.repeat([9.0, 1.0], [10, 90]) / 180
    right, after = np.ones(100, bool), np.ones(100, bool)
    heavy, light = after.copy(), after.copy()
    heavy[:2] = False  # 2 of the heavy rows: 18 of 180
    light[10:28] = False  # 18 of the light ones: 18 of 180
    intervals = [gain_interval(Paired(np.arange(100), right, own, weights)) for own in (heavy, light)]
    assert width(intervals[0]) > 1.5 * width(intervals[1])


@given(st.integers(0, 40), st.integers(0, 40), st.integers(80, 2000))
def test_it_holds_the_gain_mirrors_when_swapped_and_shrinks_with_rows(w: int, ls: int, n: int) -> None:
    pair = paired(w, ls, n)
    low, high = gain_interval(pair)
    assert -1 <= low <= pair.gain <= high <= 1
    assert gain_interval(Paired(pair.rows, pair.after, pair.before, pair.weights)) == pytest.approx(
        (-high, -low)
    )
    assert width(gain_interval(paired(2 * w, 2 * ls, 2 * n))) < high - low
    assert width(gain_interval(pair, 0.8)) < high - low


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([0.5, 0.5, 0.5], "sum of 1.5"),
        ([1.5, -0.25, -0.25], "least weight of -0.25"),
        ([0.5, 0.5], r"lengths \[3, 3, 3, 2\]"),
    ],
)
def test_wrong_outcomes_are_named(weights: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Paired(np.arange(3), np.ones(3, bool), np.ones(3, bool), np.array(weights))


def test_a_client_without_test_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="one value per test row"):
        Paired(np.arange(0), np.ones(0, bool), np.ones(0, bool), np.ones(0))


# these clients, one seed ------------------------------------------------------------------------


def test_of_one_client_it_is_the_clients_interval() -> None:
    pair = drawn(np.random.default_rng(2), 60)
    assert row_interval([pair]) == gain_interval(pair)
    assert np.isnan(row_interval([])).all()


def test_variances_of_clients_on_rows_of_their_own_add_up() -> None:
    rng = np.random.default_rng(3)
    pairs = [drawn(rng, 4000, 4000 * client) for client in range(4)]
    alone = [width(gain_interval(pair)) for pair in pairs]
    assert width(row_interval(pairs)) == pytest.approx(math.hypot(*alone) / 4, rel=0.01)


def test_clients_with_the_same_outcomes_on_the_same_rows_are_one_client() -> None:
    pair = drawn(np.random.default_rng(4), 200)
    assert row_interval([pair] * 5) == pytest.approx(row_interval([pair]))
    apart = [Paired(pair.rows + 200 * k, pair.before, pair.after, pair.weights) for k in range(5)]
    assert width(row_interval(apart)) == pytest.approx(width(row_interval([pair])) / math.sqrt(5), rel=0.05)


def test_shared_rows_that_cancel_leave_little_to_chance() -> None:
    pair = drawn(np.random.default_rng(5), 500)
    opposite = Paired(pair.rows, pair.after, pair.before, pair.weights)
    assert width(row_interval([pair, opposite])) < 0.2 * width(row_interval([pair]))


# these clients, several seeds -------------------------------------------------------------------


@given(st.lists(st.integers(-300, 300), min_size=2, max_size=8).filter(lambda means: len(set(means)) > 1))
def test_seeds_have_scipys_t_interval(values: list[int]) -> None:
    means = [value / 10_000 for value in values]
    expected = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    assert seed_interval(means) == pytest.approx((max(expected.low, -1), min(expected.high, 1)), abs=1e-9)


def test_three_seeds_reach_two_and_a_half_times_as_far_as_they_lie_apart() -> None:
    assert seed_interval([-0.1, 0.0, 0.1]) == pytest.approx((-0.248, 0.248), abs=0.001)


def test_a_failed_seed_is_left_out_and_no_scale_is_no_interval() -> None:
    assert seed_interval([0.01, math.nan, 0.03]) == seed_interval([0.01, 0.03])
    for means in ([], [0.02], [0.02, math.nan], [0.02, 0.02, 0.02]):
        assert np.isnan(seed_interval(means)).all()


def test_no_interval_reaches_beyond_what_a_gain_can_be() -> None:
    assert seed_interval([-0.2, 0.3]) == (-1, 1)


# clients as a sample ----------------------------------------------------------------------------


def test_of_one_seed_it_is_scipys_t_interval_over_clients() -> None:
    gains = [0.03, -0.01, 0.02, 0.05]
    expected = stats.ttest_1samp(gains, 0).confidence_interval(0.95)
    assert client_interval([gains]) == pytest.approx(tuple(expected))
    assert client_interval([[*gains, math.nan]]) == client_interval([gains])
    for table in ([[0.03]], [[0.03], [0.04]], [[0.03, math.nan]], [[0.02, 0.02], [0.02, 0.02]]):
        assert np.isnan(client_interval(table)).all()


def test_more_seeds_of_the_same_clients_do_not_narrow_it() -> None:
    gains = np.random.default_rng(9).normal(0.02, 0.03, 10)
    assert client_interval(np.tile(gains, (3, 1))) == pytest.approx(client_interval([gains]))


def test_clients_that_gain_alike_leave_the_interval_of_the_seeds() -> None:
    means = [-0.05, 0.0, 0.02]
    table = np.repeat(np.array(means)[:, None], 10, axis=1)
    assert client_interval(table) == pytest.approx(seed_interval(means))


@pytest.mark.parametrize(("seed_scale", "widest"), [(1, "clients"), (2, "both"), (9, "seeds")])
def test_a_crossed_table_has_the_closed_form_of_its_mean_squares(seed_scale: float, widest: str) -> None:
    """Gains of effects + a residual orthogonal to both, whose mean squares follow by hand."""
    client, seed = np.array([-3, -1, 1, 3.0]) / 1000, seed_scale * np.array([-1, 1, -1, 1.0]) / 1000
    rest = np.outer([1, -1, -1, 1.0], [1, -1, -1, 1.0]) / 1000
    by_client = 20e-6 / 3 / 4  # MS_clients / (S K), with no residual in it
    ms_seeds, ms_rest = 4 * seed_scale**2 * 4e-6 / 3, 16e-6 / 9
    by_seed = (ms_seeds - ms_rest) / 16
    freedom = (by_client + by_seed) ** 2 / (by_client**2 / 3 + by_seed**2 / 3)
    halves = {
        name: stats.t.ppf(0.975, degrees) * math.sqrt(variance)
        for name, degrees, variance in (
            ("clients", 3, by_client),
            ("seeds", 3, by_seed),
            ("both", freedom, by_client + by_seed),
        )
    }
    assert max(halves, key=halves.__getitem__) == widest
    half = halves[widest]
    assert client_interval(0.05 + client + seed[:, None] + rest) == pytest.approx((0.05 - half, 0.05 + half))


def test_a_missing_gain_is_filled_in_by_its_client_and_its_seed() -> None:
    client, seed = np.array([-0.02, 0.01, 0.0, 0.03]), np.array([[-0.01], [0.0], [0.02]])
    table = 0.03 + client + seed
    missing = table.copy()
    missing[1, 2] = math.nan
    assert client_interval(missing) == pytest.approx(client_interval(table))


def test_a_client_or_a_seed_that_failed_throughout_is_left_out() -> None:
    table = np.random.default_rng(10).normal(0.02, 0.03, (3, 5))
    client, seed = np.full((3, 1), math.nan), np.full((1, 5), math.nan)
    assert client_interval(np.hstack([table, client])) == client_interval(table)
    assert client_interval(np.vstack([table, seed])) == client_interval(table)


# coverage, briefly; benchmarks/coverage.py has every design ---------------------------------------


@pytest.mark.parametrize(("seeds", "clients"), [(2, 5), (3, 10)])
def test_both_intervals_of_the_mean_gain_cover(seeds: int, clients: int) -> None:
    rng, hits = np.random.default_rng(6), np.zeros(2)
    for _ in range(600):
        roles = rng.normal(0, 0.03, clients)
        table = roles + rng.normal(0, 0.03, (seeds, 1)) + rng.normal(0, 0.015, (seeds, clients))
        of_these, of_sample = seed_interval(table.mean(1).tolist()), client_interval(table)
        hits += [of_these[0] <= roles.mean() <= of_these[1], of_sample[0] <= 0 <= of_sample[1]]
    assert hits / 600 == pytest.approx([0.95, 0.95], abs=0.03)
