"""The sentence says what the numbers say, and no more."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedakd.fairness import Fairness, assess
from fedakd.verdict import pooled_gain, verdict

ALONE = [0.60, 0.64, 0.68, 0.72, 0.76, 0.80, 0.82, 0.84, 0.86, 0.88]
ROWS = [400] * 10
BETTER = assess(ALONE, [value + gain for value, gain in zip(ALONE, [0.05, 0.03] * 5, strict=True)], ROWS)


def joined(*changes: float) -> Fairness:
    return assess(ALONE, [value + change for value, change in zip(ALONE, changes, strict=True)], ROWS)


def test_a_clear_gain_in_the_order_of_strength() -> None:
    assert verdict("FedAKD (personal)", [BETTER]) == (
        "FedAKD (personal): joining pays: clients gain 4.0 points on average "
        f"(95 % interval {100 * BETTER.mean_gain_low:.1f} to {100 * BETTER.mean_gain_high:.1f}) "
        "and nobody is worse off; stronger clients stay stronger "
        f"(CF {BETTER.cf:.0f}, interval {BETTER.cf_low:.0f} to {BETTER.cf_high:.0f})."
    )


def test_standalone_is_the_reference() -> None:
    run = assess(ALONE, ALONE, ROWS)
    assert verdict("Standalone", [run]) == "Standalone: the reference: every client alone; average 76.0."


def test_another_method_that_changes_nothing_is_not_called_the_reference() -> None:
    words = verdict("Lazy", [assess(ALONE, ALONE, ROWS)])
    assert words == "Lazy: joining changes nothing: every client scores as it does alone; average 76.0."


def test_without_a_reference_nothing_is_promised() -> None:
    words = verdict("FedAvg", [assess(None, ALONE, ROWS)])
    assert words == "FedAvg: average 76.0; without standalone runs nobody can say whether joining pays."


def test_losers_are_counted_and_told_from_chance() -> None:
    words = verdict("M", [joined(0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, -0.01, 0.05)])
    assert "joining pays" in words
    assert "but 1 of 10 clients is worse off (none clearly)" in words
    words = verdict("M", [joined(-0.3, -0.2, -0.01, *[0.02] * 7)])
    assert "and 3 of 10 clients are worse off (2 clearly)" in words


def test_a_loss_is_called_a_loss() -> None:
    words = verdict("M", [joined(*[-0.05, -0.03] * 5)])
    assert "joining costs: clients lose 4.0 points on average (95 % interval 3." in words
    assert "and 10 of 10 clients are worse off" in words


def test_an_interval_around_zero_is_no_clear_gain() -> None:
    words = verdict("M", [joined(*[0.05, -0.04] * 5)])
    assert "no clear gain: clients gain 0.5 points on average (95 % interval of the gain -" in words
    words = verdict("M", [joined(0.3, *[0.0] * 9)])
    assert "but nobody is worse off" in words
    words = verdict("M", [joined(*[-0.05, 0.04] * 5)])
    assert "no clear gain or loss: clients lose 0.5 points on average" in words


def test_too_few_clients_get_no_verdict_on_gain_or_order() -> None:
    words = verdict("M", [assess(ALONE[:3], [0.7, 0.74, 0.79], ROWS[:3])])
    assert "too few clients to tell whether joining pays: clients gain 10.3 points" in words
    assert "(no interval) and nobody is worse off" in words
    assert "too few clients to tell whether stronger clients stay stronger (CF 100, no interval)" in words


def test_undefined_cf_is_said() -> None:
    words = verdict("Global", [assess(ALONE, [0.9] * 10, ROWS)])
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
    assert "joining costs: clients lose 1.6 points on average (95 % interval 0.02 to 3.2)" in words
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
    words = verdict("M", [replace(BETTER, cf=80, cf_low=60, cf_high=90), assess(ALONE, [0.9] * 10, ROWS)])
    assert "(CF 80, interval 60 to 90, undefined in 1 of 2 seeds)" in words


def test_failed_clients_are_mentioned() -> None:
    after = [value + 0.04 for value in ALONE[:9]]
    words = verdict("M", [assess(ALONE, [*after, math.nan], ROWS)])
    assert words.endswith(" [1 failed client result left out].")
    assert "gain 4.0 points" in words


def test_one_seed_keeps_its_own_interval() -> None:
    assert pooled_gain([BETTER]) == (BETTER.mean_gain, BETTER.mean_gain_low, BETTER.mean_gain_high)


def test_pooling_counts_every_result_once_and_skips_failures() -> None:
    failed = assess(ALONE, [math.nan, *[value + 0.01 for value in ALONE[1:]]], ROWS)
    gain, low, high = pooled_gain([BETTER, failed])
    assert gain == pytest.approx(np.nanmean([BETTER.gains, failed.gains]))
    assert low < gain < high


def test_runs_of_different_federations_are_not_pooled() -> None:
    other = assess(ALONE[:5], ALONE[1:6], ROWS[:5])
    with pytest.raises(ValueError, match=r"same number of clients, got \[10, 5\]"):
        verdict("M", [BETTER, other])


def test_no_run_no_verdict() -> None:
    with pytest.raises(ValueError, match="M: a verdict needs at least one run"):
        verdict("M", [])


@pytest.mark.parametrize("changes", [[0.05] * 10, [-0.05] * 10, [0.1, -0.1] * 5, [1e-4, -2e-4] * 5])
def test_a_verdict_is_one_sentence_without_odd_numbers(changes: list[float]) -> None:
    words = verdict("M", [joined(*changes)])
    assert words.endswith(").")
    assert ". " not in words
    assert "nan" not in words
    assert "-0.0 " not in words
