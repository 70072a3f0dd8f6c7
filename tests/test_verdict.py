"""The sentence says what the numbers say, and no more."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedakd.fairness import Fairness, assess
from fedakd.intervals import Paired, client_interval, row_interval, seed_interval
from fedakd.verdict import pooled_gain, sample_gain, verdict, verdict_class

ALONE = [0.60, 0.64, 0.68, 0.72, 0.76, 0.80, 0.82, 0.84, 0.86, 0.88]
ROWS = 400


def outcomes(alone: float, joined: float, first: int) -> Paired:
    """A client whose models have the same rows right, but for those that make the gain."""
    place = np.arange(ROWS)
    before, after = (place < round(accuracy * ROWS) for accuracy in (alone, joined))
    return Paired(first + place, before, after, np.full(ROWS, 1 / ROWS))


def joined(*changes: float) -> Fairness:
    """Changes are rounded to whole rows."""
    alone = ALONE[: len(changes)]
    after = [round((a + change) * ROWS) / ROWS for a, change in zip(alone, changes, strict=True)]
    pairs = [outcomes(a, b, ROWS * k) for k, (a, b) in enumerate(zip(alone, after, strict=True))]
    return assess(alone, after, pairs)


BETTER = joined(*[0.05, 0.03] * 5)
OF_ROWS = "95 % interval of this one draw of rows"


def test_a_clear_gain_in_the_order_of_strength() -> None:
    assert verdict("FedAKD (personal)", [BETTER]) == (
        "FedAKD (personal): joining pays: clients gain 4.0 points on average "
        f"(95 % interval of this one draw of rows: {100 * BETTER.mean_gain_low:.1f} to "
        f"{100 * BETTER.mean_gain_high:.1f}; other seeds may differ) "
        "and nobody is worse off; stronger clients stay stronger "
        f"(CF {BETTER.cf:.0f}, interval {BETTER.cf_low:.0f} to {BETTER.cf_high:.0f})."
    )


def test_standalone_is_the_reference() -> None:
    run = assess(ALONE, ALONE)
    assert verdict("Standalone", [run]) == "Standalone: the reference: every client alone; average 76.0."


def test_another_method_that_changes_nothing_is_not_called_the_reference() -> None:
    words = verdict("Lazy", [assess(ALONE, ALONE)])
    assert words == "Lazy: joining changes nothing: every client scores as it does alone; average 76.0."


def test_without_a_reference_nothing_is_promised() -> None:
    words = verdict("FedAvg", [assess(None, ALONE)])
    assert words == "FedAvg: average 76.0; without standalone runs nobody can say whether joining pays."


def test_losers_are_counted_and_told_from_chance() -> None:
    words = verdict("M", [joined(0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, -0.01, 0.05)])
    assert "joining pays" in words
    assert "but 1 of 10 clients is worse off (none clearly)" in words
    words = verdict("M", [joined(-0.3, -0.2, -0.01, *[0.02] * 7)])
    assert "and 3 of 10 clients are worse off (2 clearly)" in words


def test_a_loss_is_called_a_loss() -> None:
    run = joined(*[-0.05, -0.03] * 5)
    words = verdict("M", [run])
    low, high = -100 * run.mean_gain_high, -100 * run.mean_gain_low
    assert f"joining costs: clients lose 4.0 points on average ({OF_ROWS}: {low:.1f} to {high:.1f};" in words
    assert "and 10 of 10 clients are worse off" in words


def test_an_interval_around_zero_is_no_clear_gain() -> None:
    words = verdict("M", [joined(*[0.05, -0.04] * 5)])
    assert f"no clear gain: clients gain 0.5 points on average ({OF_ROWS}: a gain of -" in words
    words = verdict("M", [joined(0.0025, *[0.0] * 9)])
    assert "but nobody is worse off" in words
    words = verdict("M", [joined(*[-0.05, 0.04] * 5)])
    assert "no clear gain or loss: clients lose 0.5 points on average" in words


def test_two_clients_get_a_verdict_on_gain_but_none_on_order() -> None:
    words = verdict("M", [joined(0.10, 0.12)])
    assert f"M: joining pays: clients gain 11.0 points on average ({OF_ROWS}: " in words
    assert "too few clients to tell whether stronger clients stay stronger (CF 100, no interval)" in words
    seeds = [joined(0.10, 0.12), joined(0.11, 0.12), joined(0.12, 0.12)]
    assert "joining pays: clients gain 11.5 points on average (95 % interval over seeds: 10." in verdict(
        "M", seeds
    )


def test_one_seed_without_outcomes_has_no_class() -> None:
    run = assess(ALONE, [value + 0.04 for value in ALONE])
    assert verdict_class([run]) == "unclear"
    words = verdict("M", [run])
    assert (
        "no clear gain: clients gain 4.0 points on average (no interval: the outcomes of test rows" in words
    )
    one_loses = assess(ALONE, [value + 0.04 for value in ALONE[:9]] + [0.8])
    assert "1 of 10 clients is worse off;" in verdict("M", [one_loses])  # nobody knows how clearly


def test_seeds_with_the_same_mean_give_no_scale() -> None:
    words = verdict("M", [BETTER, BETTER])
    assert "no clear gain: clients gain 4.0 points on average (no interval: all seeds give the same" in words


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ((0.03, 0.04, 0.05), "pays"),
        ((-0.03, -0.04, -0.05), "costs"),
        ((-0.01, 0.04, 0.05), "unclear"),
        ((0.01, 0.05), "unclear"),
    ],
)
def test_the_class_follows_from_the_seeds_and_is_the_one_told(
    gains: tuple[float, ...], expected: str
) -> None:
    runs = [joined(*[gain] * 10) for gain in gains]
    assert verdict_class(runs) == expected
    leads = {"pays": "M: joining pays: ", "costs": "M: joining costs: ", "unclear": "M: no clear gain"}
    assert verdict("M", runs).startswith(leads[expected])


def test_without_a_reference_the_class_is_unclear() -> None:
    assert verdict_class([assess(None, ALONE)]) == "unclear"


@pytest.mark.parametrize("runs", [[BETTER], [BETTER, joined(*[0.03] * 10), joined(*[0.05] * 10)]])
def test_a_run_that_has_not_converged_gets_its_numbers_and_no_verdict(runs: list[Fairness]) -> None:
    assert verdict_class(runs) == "pays"
    words = verdict("M", runs, unconverged="Standalone still gained 2.1 points over the last 5 rounds")
    assert words.startswith("M: no verdict yet: Standalone still gained 2.1 points over")
    assert "so far clients gain 4.0 points on average (95 % interval " in words
    assert "pays" not in words
    assert "costs" not in words
    assert ", nobody is worse off, CF " in words


def test_passes_are_told_where_they_differ() -> None:
    assert verdict("M", [BETTER], passes=(36.64, 20.0)).endswith(
        " [36.6 passes over the training rows, alone 20.0]."
    )
    assert "passes" not in verdict("M", [BETTER], passes=(20.0, 20.0))


def test_undefined_cf_is_said() -> None:
    words = verdict("Global", [assess(ALONE, [0.9] * 10)])
    assert words.endswith("cannot be told (CF undefined: all clients score alike).")


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (60, 97, "stronger clients stay stronger"),
        (5, 97, "stronger clients tend to stay stronger"),
        (-40, 90, "too few clients to tell whether stronger clients stay stronger"),
        (-20, 30, "strength before joining says little about strength after"),
        (-1, 99, "too few clients to tell whether stronger clients stay stronger"),
        (-90, 10, "too few clients to tell whether stronger clients stay stronger"),
        (-90, -10, "stronger clients end up weaker"),
    ],
)
def test_the_order_is_worded_by_the_interval(low: float, high: float, words: str) -> None:
    sentence = verdict("M", [replace(BETTER, cf=12.4, cf_low=low, cf_high=high)])
    assert sentence.endswith(f"; {words} (CF 12, interval {low} to {high}).")


def test_no_interval_reads_as_if_it_contained_zero() -> None:
    run = replace(BETTER, mean_gain=-0.016, mean_gain_low=-0.032, mean_gain_high=-0.0002, cf_low=0.3)
    words = verdict("M", [run])
    assert f"joining costs: clients lose 1.6 points on average ({OF_ROWS}: 0.02 to 3.2;" in words
    assert "tend to stay stronger" in words
    assert "interval 0.3 to" in words


def test_seeds_are_pooled_and_named() -> None:
    worse = joined(-0.01, *[0.04] * 9)
    words = verdict("M", [BETTER, worse, BETTER])
    mean = 100 * (2 * BETTER.mean_gain + worse.mean_gain) / 3
    assert f"clients gain {mean:.1f} points" in words
    assert "but 1 of 30 client results over 3 seeds is worse off" in words
    assert words.endswith(" [3 seeds].")


def test_seeds_without_a_defined_cf_are_counted() -> None:
    words = verdict("M", [replace(BETTER, cf=80, cf_low=60, cf_high=90), assess(ALONE, [0.9] * 10)])
    assert "(CF 80, interval 60 to 90, undefined in 1 of 2 seeds)" in words


def test_failed_clients_are_mentioned() -> None:
    after = [value + 0.04 for value in ALONE[:9]]
    words = verdict("M", [assess(ALONE, [*after, math.nan])])
    assert words.endswith(" [1 failed client result left out].")
    assert "gain 4.0 points" in words


def test_one_seed_has_the_interval_of_its_rows() -> None:
    pairs = [outcomes(a, a + g, ROWS * k) for k, (a, g) in enumerate(zip(ALONE, BETTER.gains, strict=True))]
    assert pooled_gain([BETTER]) == pytest.approx((BETTER.mean_gain, *row_interval(pairs)))


def test_seeds_are_pooled_by_their_means_and_failed_clients_left_out_of_them() -> None:
    failed = assess(ALONE, [math.nan, *[value + 0.01 for value in ALONE[1:]]])
    gain, low, high = pooled_gain([BETTER, failed])
    assert gain == pytest.approx((BETTER.mean_gain + 0.01) / 2)
    assert (low, high) == seed_interval([BETTER.mean_gain, failed.mean_gain])


def test_clients_as_a_sample_have_an_interval_of_their_own() -> None:
    other = joined(*[0.01, 0.06] * 5)
    assert sample_gain([BETTER]) == client_interval([BETTER.gains])
    assert sample_gain([BETTER, other]) == client_interval([BETTER.gains, other.gains])


def test_runs_of_different_federations_are_not_pooled() -> None:
    other = assess(ALONE[:5], ALONE[1:6])
    with pytest.raises(ValueError, match=r"same number of clients, got \[10, 5\]"):
        verdict("M", [BETTER, other])


def test_no_run_no_verdict() -> None:
    with pytest.raises(ValueError, match="M: a verdict needs at least one run"):
        verdict("M", [])


@pytest.mark.parametrize("changes", [[0.05] * 10, [-0.05] * 10, [0.1, -0.1] * 5, [0.0025, -0.005] * 5])
def test_a_verdict_is_one_sentence_without_odd_numbers(changes: list[float]) -> None:
    words = verdict("M", [joined(*changes)])
    assert words.endswith(").")
    assert ". " not in words
    assert "nan" not in words
    assert "-0.0 " not in words
