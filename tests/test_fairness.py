"""Fairness numbers against independent references, and the laws they obey."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedakd.correlation import cf_coefficient, cf_interval, spearman
from fedakd.fairness import assess, gains, gini, jain, over_seeds, worse_off
from fedakd.intervals import Paired, client_interval, gain_interval, row_interval

Lists = tuple[list[float], list[float]]
ALONE = [0.60, 0.65, 0.70, 0.72, 0.80, 0.85]
JOINED = [0.70, 0.69, 0.78, 0.74, 0.83, 0.86]


@st.composite
def accuracy_lists(draw: st.DrawFn) -> Lists:
    """Two lists of accuracies on 200 rows, neither of them constant."""
    shares = st.integers(0, 200).map(lambda hits: hits / 200)
    size = draw(st.integers(2, 12))
    varied = st.lists(shares, min_size=size, max_size=size).filter(lambda values: len(set(values)) > 1)
    return draw(varied), draw(varied)


def fresh(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# CF and Spearman --------------------------------------------------------------------------------


@given(accuracy_lists())
def test_cf_is_scipys_pearson(lists: Lists) -> None:
    assert cf_coefficient(*lists) == pytest.approx(100 * stats.pearsonr(*lists)[0], abs=1e-8)


@given(accuracy_lists())
def test_spearman_is_scipys_spearman(lists: Lists) -> None:
    assert spearman(*lists) == pytest.approx(stats.spearmanr(*lists)[0], abs=1e-9)


@given(accuracy_lists(), st.floats(0.1, 10), st.floats(-1, 1))
def test_cf_does_not_see_positive_affine_maps(lists: Lists, slope: float, shift: float) -> None:
    alone, joined = lists
    mapped = [slope * value + shift for value in joined]
    assert cf_coefficient(alone, mapped) == pytest.approx(cf_coefficient(alone, joined), abs=1e-7)
    flipped = [-value for value in joined]
    assert cf_coefficient(alone, flipped) == pytest.approx(-cf_coefficient(alone, joined), abs=1e-7)


@given(accuracy_lists())
def test_cf_and_spearman_are_symmetric_and_bounded(lists: Lists) -> None:
    alone, joined = lists
    assert cf_coefficient(alone, joined) == cf_coefficient(joined, alone)
    assert -100 <= cf_coefficient(alone, joined) <= 100
    assert spearman(alone, joined) == spearman(joined, alone)
    assert -1 <= spearman(alone, joined) <= 1


@given(accuracy_lists())
def test_cf_of_standalone_with_itself_is_exactly_100(lists: Lists) -> None:
    assert cf_coefficient(lists[0], lists[0]) == 100.0
    assert spearman(lists[0], lists[0]) == 1.0


@pytest.mark.parametrize(
    "constant", [[0.3] * 3, [0.0] * 3, [0.1 + 0.2, 0.3, 0.3], [0.7, float(np.float32(0.7)), 0.7]]
)
def test_correlation_with_a_constant_is_undefined(constant: list[float]) -> None:
    assert math.isnan(cf_coefficient(constant, [0.1, 0.2, 0.4]))
    assert math.isnan(spearman([0.1, 0.2, 0.4], constant))


@pytest.mark.parametrize("lists", [([], []), ([0.5], [0.6]), ([0.5, math.nan], [0.6, 0.7])])
def test_correlation_of_too_few_or_unknown_is_undefined(lists: Lists) -> None:
    assert math.isnan(cf_coefficient(*lists))
    assert math.isnan(spearman(*lists))


def test_values_equal_up_to_rounding_are_ties() -> None:
    assert spearman([0.1 + 0.2, 0.3, 0.9], [0.1, 0.2, 0.9]) == spearman([0.3, 0.3, 0.9], [0.1, 0.2, 0.9])


def test_tiny_differences_do_not_vanish_in_squares() -> None:
    assert cf_coefficient([1e-200, 2e-200, 3e-200], [1e200, 2e200, 3e200]) == 100.0


# intervals over clients -------------------------------------------------------------------------


def tail(clients: int) -> float:
    """The lower quantile for a nominal 95 %, by another route than the code's."""
    t = stats.t.ppf(0.025, clients - 1)
    return float(stats.norm.cdf(t * math.sqrt(clients / (clients - 1))))


def cohort(r: float, clients: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two vectors whose sample correlation is exactly r."""
    x, w = stats.zscore(rng.normal(size=clients)), rng.normal(size=clients)
    rest = stats.zscore(w - w.mean() - x * (w @ x) / clients)
    return x, r * x + math.sqrt(1 - r * r) * rest


@pytest.mark.parametrize(("r", "clients", "seed"), [(0.78, 10, 1), (0.3, 30, 1), (-0.6, 20, 2)])
def test_cf_interval_is_the_wider_of_scipys_bootstrap_and_fishers(r: float, clients: int, seed: int) -> None:
    x, y = cohort(r, clients, fresh(seed))
    resampled = stats.bootstrap(
        (x, y),
        lambda a, b, axis: stats.pearsonr(a, b, axis=axis).statistic,
        paired=True,
        vectorized=True,
        n_resamples=20_000,
        confidence_level=1 - 2 * tail(clients),
        method="percentile",
        rng=fresh(2),
    ).confidence_interval
    fisher = stats.pearsonr(x, y).confidence_interval(0.95)
    expected = 100 * min(resampled.low, fisher.low), 100 * max(resampled.high, fisher.high)
    assert cf_interval(x, y, rng=fresh(3), draws=20_000) == pytest.approx(expected, abs=4)


def test_cf_interval_is_never_narrower_than_fishers() -> None:
    """With five clients the bootstrap often is: its resamples hold few different clients."""
    rng = fresh(11)
    for _ in range(50):
        x, noise = rng.normal(size=(2, 5))
        y = 0.95 * x + math.sqrt(1 - 0.95**2) * noise
        low, high = cf_interval(x, y, rng=rng)
        fisher = stats.pearsonr(x, y).confidence_interval(0.95)
        assert low <= 100 * fisher.low + 1e-6
        assert high >= 100 * fisher.high - 1e-6


def test_cf_of_78_with_ten_clients_says_little() -> None:
    """The protocol's orientation, 30 to 95, is Fisher's; the bootstrap's differs from cohort to cohort."""
    ends = np.median([cf_interval(*cohort(0.78, 10, fresh(i)), rng=fresh(i)) for i in range(40)], axis=0)
    z, half = math.atanh(0.78), 1.96 / math.sqrt(10 - 3)
    assert (math.tanh(z - half), math.tanh(z + half)) == pytest.approx((0.30, 0.95), abs=0.01)
    assert ends == pytest.approx([30, 95], abs=12)


def test_cf_intervals_cover_what_they_promise() -> None:
    """Plain percentiles cover about 90 % here."""
    rng, hits = fresh(5), 0
    for _ in range(400):
        x, noise = rng.normal(size=(2, 10))
        low, high = cf_interval(x, 0.78 * x + math.sqrt(1 - 0.78**2) * noise, rng=rng, draws=500)
        hits += low <= 78 <= high
    assert hits / 400 >= 0.94


def test_a_lower_level_gives_a_narrower_interval() -> None:
    narrow, wide = (cf_interval(ALONE, JOINED, rng=fresh(), level=level) for level in (0.5, 0.95))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_too_few_clients_have_no_interval() -> None:
    few = 4
    assert np.isnan(cf_interval(ALONE[:few], JOINED[:few], rng=fresh())).all()
    assert np.isfinite(cf_interval(ALONE[:5], JOINED[:5], rng=fresh())).all()


def test_undefined_resamples_are_left_out_while_they_are_a_minority() -> None:
    one_differs = [0.9] + [0.5] * 9  # absent from (9/10)^10 = 35 % of the resamples
    assert cf_interval(one_differs, one_differs, rng=fresh()) == (100.0, 100.0)
    assert np.isnan(cf_interval([0.5] * 10, one_differs, rng=fresh())).all()


def test_an_interval_from_a_minority_of_resamples_is_undefined() -> None:
    rows_apart = [0.9] + [0.5] * 9, [0.5] * 9 + [0.9]  # both present: 1 - 2 * 0.9^10 + 0.8^10 = 41 %
    assert np.isfinite(cf_coefficient(*rows_apart))
    assert np.isnan(cf_interval(*rows_apart, rng=fresh())).all()


# gains of one client ----------------------------------------------------------------------------


def test_gains_are_differences_and_rounding_is_no_gain() -> None:
    assert gains([0.5, 0.3], [0.75, 0.1 + 0.2]) == (0.25, 0.0)
    assert worse_off(gains([0.1 + 0.2], [0.3])) == 0


# how gains are shared ---------------------------------------------------------------------------

shared = st.lists(st.floats(0, 1), min_size=1, max_size=12).filter(lambda values: max(values) > 0)


@given(shared)
def test_jain_of_non_negative_gains_is_between_one_over_n_and_1(values: list[float]) -> None:
    assert 1 / len(values) - 1e-12 <= jain(values) <= 1


@given(shared, st.floats(0.01, 100))
def test_jain_and_gini_do_not_see_the_scale(values: list[float], by: float) -> None:
    scaled = [by * value for value in values]
    if max(scaled) > 1e-300 and min(value for value in values if value) > 1e-300:
        assert jain(scaled) == pytest.approx(jain(values))
        assert gini(scaled) == pytest.approx(gini(values), abs=1e-9)


@given(shared)
def test_gini_is_half_the_relative_mean_difference(values: list[float]) -> None:
    x = np.array(values) / max(values)
    assert gini(values) == pytest.approx(np.abs(x[:, None] - x).mean() / (2 * x.mean()), abs=1e-9)
    assert 0 <= gini(values) < 1


@given(st.floats(1e-300, 1), st.integers(1, 30))
def test_equal_gains_are_even(gain: float, clients: int) -> None:
    assert jain([gain] * clients) == pytest.approx(1)
    assert gini([gain] * clients) == pytest.approx(0, abs=1e-12)


def test_negative_gains() -> None:
    assert jain([0.1, -0.1]) == 0
    assert jain([-0.2, -0.2]) == 1
    assert math.isnan(gini([0.1, -0.1]))


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [0.1, math.nan]])
def test_shares_of_nothing_are_undefined(values: list[float]) -> None:
    assert math.isnan(jain(values))
    assert math.isnan(gini(values))


def test_worse_off_counts_losses_beyond_the_tolerance() -> None:
    assert worse_off([-0.02, -0.005, 0.0, 0.1, math.nan]) == 2
    assert worse_off([-0.02, -0.005, 0.0, 0.1], tolerance=0.01) == 1


# one run ----------------------------------------------------------------------------------------


def outcomes(alone: float, joined: float, rows: int, first: int = 0) -> Paired:
    """A client whose models have as many rows right as the accuracies say, mostly the same ones."""
    place = np.arange(rows)
    before, after = (place < round(accuracy * rows) for accuracy in (alone, joined))
    return Paired(first + place, before, after, np.full(rows, 1 / rows))


PAIRS = [outcomes(a, b, 100, 100 * k) for k, (a, b) in enumerate(zip(ALONE, JOINED, strict=True))]


def test_a_run_gathers_its_parts() -> None:
    run = assess(ALONE, JOINED, PAIRS)
    assert (run.maximum, run.minimum, run.clients, run.failed) == (0.86, 0.69, 6, 0)
    assert run.average == pytest.approx(np.mean(JOINED))
    assert run.cf == cf_coefficient(ALONE, JOINED)
    assert run.spearman == spearman(ALONE, JOINED)
    assert run.gains == gains(ALONE, JOINED)
    assert (run.gain_low[4], run.gain_high[4]) == gain_interval(PAIRS[4])
    assert (run.jain, run.gini) == (jain(run.gains), gini(run.gains))
    assert (run.mean_gain_low, run.mean_gain_high) == row_interval(PAIRS)
    assert (run.sample_gain_low, run.sample_gain_high) == client_interval([run.gains])
    assert run.cf_low < run.cf < run.cf_high


def test_accuracies_without_outcomes_give_no_interval_from_rows() -> None:
    run = assess(ALONE, JOINED)
    assert np.isnan([*run.gain_low, *run.gain_high, run.mean_gain_low, run.mean_gain_high]).all()
    assert (run.worse_off, run.significantly_worse) == (0, None)
    assert run.sample_gain_low < run.mean_gain < run.sample_gain_high
    partly = assess(ALONE, JOINED, [*PAIRS[:5], None])
    assert np.isfinite(partly.gain_low[:5]).all()
    assert np.isnan([partly.gain_low[5], partly.mean_gain_low]).all()


def test_outcomes_of_other_rows_are_refused() -> None:
    other = [*PAIRS[:5], outcomes(0.85, 0.90, 100)]
    with pytest.raises(ValueError, match=r"client 5 must be .* gain of 0\.05000 by outcomes and of 0\.01000"):
        assess(ALONE, JOINED, other)


def test_a_run_is_assessed_the_same_twice_and_its_seed_matters() -> None:
    x, y = cohort(0.5, 12, fresh(4))
    lists = (0.5 + x / 10).tolist(), (0.5 + y / 10).tolist()
    assert assess(*lists, seed=3).cf_low == assess(*lists, seed=3).cf_low != assess(*lists, seed=4).cf_low


def test_clearly_worse_is_told_from_slightly_worse() -> None:
    alone, joined = [0.9, 0.9, 0.9], [0.7, 0.89, 0.95]
    run = assess(alone, joined, [outcomes(a, b, 500) for a, b in zip(alone, joined, strict=True)])
    assert (run.worse_off, run.significantly_worse) == (2, 1)


def test_a_failed_client_is_left_out_and_counted() -> None:
    full = assess(ALONE, JOINED, PAIRS)
    run = assess([*ALONE, 0.5], [*JOINED, math.nan], [*PAIRS, None])
    assert (run.clients, run.failed) == (6, 1)
    assert math.isnan(run.gains[6])
    assert math.isnan(run.gain_high[6])
    assert run.gains[:6] == full.gains
    same = ("average", "minimum", "cf", "cf_low", "mean_gain", "mean_gain_high", "sample_gain_low", "jain")
    assert [getattr(run, name) for name in same] == [getattr(full, name) for name in same]
    assert (run.worse_off, run.significantly_worse) == (full.worse_off, full.significantly_worse)


def test_without_a_reference_only_averages_are_known() -> None:
    run = assess(None, [0.5, math.nan, 0.7])
    assert (run.average, run.maximum, run.minimum) == pytest.approx((0.6, 0.7, 0.5))
    assert (run.clients, run.failed, run.gains, run.worse_off) == (2, 1, (), None)
    assert math.isnan(run.cf)


@pytest.mark.parametrize("clients", [1, 2])
def test_few_clients_have_a_gain_with_its_interval_but_no_interval_of_cf(clients: int) -> None:
    run = assess(ALONE[:clients], JOINED[:clients], PAIRS[:clients])
    assert run.mean_gain_low < run.mean_gain < run.mean_gain_high
    assert math.isnan(run.cf_low)


@pytest.mark.parametrize(
    ("alone", "joined", "words"),
    [
        ([0.5, 88.1], [0.5, 0.6], "standalone accuracies must be in 0-1, got 88.1 for client 1"),
        ([0.5, 0.6], [-0.1, 0.6], "federated accuracies must be in 0-1, got -0.1 for client 0"),
        ([0.5, 0.6], [0.5, math.inf], "got inf for client 1"),
        ([0.5, 0.6], [0.5], r"one value per client, got lengths \[2, 1, 1\]"),
        ([0.5], [math.nan], "at least one client must have an accuracy, got none of 1"),
    ],
)
def test_wrong_input_is_named(alone: list[float], joined: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        assess(alone, joined)


def test_outcomes_are_one_a_client() -> None:
    with pytest.raises(ValueError, match=r"one value per client, got lengths \[6, 6, 5\]"):
        assess(ALONE, JOINED, PAIRS[:5])


def test_what_is_stored_is_strict_json() -> None:
    run = assess([0.5, 0.6, 0.7], [0.5, 0.5, math.nan])
    stored = json.loads(json.dumps(run.to_dict(), allow_nan=False))
    assert stored["cf"] is None
    assert stored["gains"][2] is None
    assert stored["gains"][1] == pytest.approx(-0.1)
    assert set(stored) == set(vars(run))


# over seeds -------------------------------------------------------------------------------------


def test_over_seeds_gives_mean_and_sample_deviation() -> None:
    runs = [assess(ALONE, [value + shift for value in JOINED]) for shift in (0.0, 0.02, 0.1)]
    average = over_seeds(runs)["average"]
    assert average.mean == pytest.approx(np.mean([run.average for run in runs]))
    assert average.std == pytest.approx(np.std([run.average for run in runs], ddof=1))
    assert average.defined == 3
    assert "gains" not in over_seeds(runs)


def test_over_seeds_counts_where_a_number_is_defined() -> None:
    constant = assess(ALONE, [0.8] * 6)
    summary = over_seeds([constant, assess(ALONE, JOINED), assess(None, JOINED)])
    assert summary["cf"].mean == cf_coefficient(ALONE, JOINED)
    assert (summary["cf"].defined, summary["worse_off"].defined, summary["average"].defined) == (1, 2, 3)
    assert math.isnan(summary["cf"].std)
    assert over_seeds([constant])["cf"].to_dict() == {"mean": None, "std": None, "defined": 0}


def test_over_no_seeds_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        over_seeds([])


def test_importing_the_module_does_not_import_scipy() -> None:
    code = "import sys, fedakd.fairness; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
