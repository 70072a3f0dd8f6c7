"""Whether a run has converged: the fitted line against SciPy's, and the rule at its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress

from fedakd.convergence import (
    LIMIT,
    Convergence,
    continue_command,
    convergence,
    mean_curve,
    score_curve,
    slope,
)
from fedakd.data import load
from fedakd.federation import federate
from fedakd.methods.fedavg import FedAvg
from fedakd.models import factory
from fedakd.rounds import Round, is_judged
from fedakd.simulation import simulate
from fedakd.training import Recipe, Task

SCORES = st.floats(0, 1, allow_nan=False)


def straight(rounds: int, step: float, judge_every: int = 1) -> list[tuple[int, float]]:
    """A score that changes by the same amount every round."""
    judged = [number for number in range(1, rounds + 1) if is_judged(number, rounds, judge_every)]
    return [(number, 0.5 + step * number) for number in judged]


@given(st.dictionaries(st.integers(1, 500), SCORES, min_size=2))
def test_the_slope_is_that_of_scipy_and_numpy(points):
    curve = sorted(points.items())
    number, score = np.array(curve, dtype=float).T
    assert slope(curve) == pytest.approx(linregress(number, score).slope, abs=1e-9)
    assert slope(curve) == pytest.approx(np.polyfit(number, score, 1)[0], abs=1e-9)


@given(st.lists(SCORES, min_size=4, max_size=80))
def test_the_rise_is_the_slope_of_the_last_quarter_times_its_rounds(scores):
    curve = list(enumerate(scores, 1))
    length = max(4, len(scores) // 4)
    number, score = np.array(curve[-length:], dtype=float).T
    expected = length * linregress(number, score).slope
    result = convergence(curve, len(scores))
    assert result.rise == pytest.approx(expected, abs=1e-9)
    assert result.rounds == length
    assert result.state == ("converged" if result.rise < LIMIT else "not converged")


@given(st.lists(SCORES, min_size=4, max_size=60), st.floats(-0.3, 0.3))
def test_only_the_change_counts_not_the_level(scores, shift):
    curve = list(enumerate(scores, 1))
    moved = [(number, score + shift) for number, score in curve]
    assert convergence(moved, len(curve)).rise == pytest.approx(convergence(curve, len(curve)).rise, abs=1e-9)


@pytest.mark.parametrize("rounds", [4, 10, 16, 20, 41])
@pytest.mark.parametrize("judge_every", [1, 5, 100])
def test_half_a_point_over_the_window_is_the_limit(rounds, judge_every):
    length = max(4, rounds // 4)
    states = [
        convergence(straight(rounds, rise / length, judge_every), rounds) for rise in (0.0049, 0.0051, -0.2)
    ]
    assert [one.state for one in states] == ["converged", "not converged", "converged"]
    assert [one.rounds for one in states] == [length] * 3
    assert [one.unstable for one in states] == [False, False, True]


def test_an_early_rise_is_forgotten():
    curve = [(number, min(number, 15) / 20) for number in range(1, 21)]
    assert convergence(curve, 20) == Convergence("converged", 0.0, 5)
    assert convergence(curve[:15], 15).state == "not converged"


@pytest.mark.parametrize("curve", [[], [(3, 0.5)], straight(3, 0.0), [(1, math.nan)] * 9])
def test_fewer_than_four_judged_rounds_tell_nothing(curve):
    result = convergence(curve, 3)
    assert (result.state, result.rounds) == ("not known", 0)
    assert math.isnan(result.rise)


def test_rounds_judged_rarely_widen_the_window():
    """A run that a budget ended has no last quarter judged whole: its last four judged rounds are taken."""
    curve = [(number, number / 1000) for number in (10, 20, 30, 40)]
    result = convergence(curve, 40)
    assert (result.rounds, result.rise) == (31, pytest.approx(0.031))


def record(number: int, scores: dict[int, float]) -> Round:
    named = {"personal/accuracy": scores, "global/accuracy": {0: 0.0}} if scores else {}
    return Round(number, [0], named, None, 0, 0, 0, {}, 0.0)


def test_the_curve_is_of_one_view_and_leaves_out_what_has_no_score():
    rounds = [record(1, {0: 0.5, 1: 0.7}), record(2, {}), record(3, {0: math.nan, 1: 0.8})]
    assert score_curve([*rounds, record(4, {0: math.nan})], "personal") == [(1, 0.6), (3, 0.8)]
    assert score_curve(rounds, "unheard of") == []


def test_seeds_are_averaged_where_all_have_a_score():
    curves = [[(1, 0.2), (2, 0.4), (3, 0.6)], [(2, 0.6), (3, math.nan), (4, 0.9)]]
    assert mean_curve(curves) == [(2, 0.5)]
    assert mean_curve([]) == []
    one = straight(9, 0.01)
    assert mean_curve([one]) == one


def test_the_sentences():
    command = continue_command("runs/first", 20)
    told = Convergence("not converged", 0.0134, 5).sentence(command)
    assert told == (
        "not converged: the last 5 rounds still gained 1.3 points; "
        "go on with: fedakd run --resume runs/first --rounds 40"
    )
    assert Convergence("not converged", 0.02, 4).sentence().endswith("gained 2.0 points")
    assert "not known" in Convergence("not known", math.nan, 0).sentence()
    assert Convergence("converged", 0.001, 5).sentence(command).endswith("by +0.1 points")
    assert "unstable: the last 5 rounds lost 3.0 points" in Convergence("converged", -0.03, 5).sentence()


def test_five_rounds_on_digits_have_not_converged_and_sixty_have():
    dataset, curves = load("digits"), []
    task = Task(factory("linear", dataset.shape, dataset.classes))
    recipe = Recipe(lr=0.02, optimizer="adam")
    for seed in range(3):
        federation = federate(dataset, "pow", 5, seed=seed)
        result = simulate(FedAvg(), federation, task, recipe, rounds=60, seed=seed, workers=0)
        curves.append(score_curve(result.rounds, "global"))
    curve = mean_curve(curves)
    assert len(curve) == 60
    assert convergence(curve[:5], 5).state == "not converged"
    assert convergence(curve[:3], 3).state == "not known"
    assert convergence(curve, 60).state == "converged"
