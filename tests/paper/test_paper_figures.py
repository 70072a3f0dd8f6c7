"""The figures show what the cells hold, and their CSV says the same."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from small_comparison import as_if, setting_of

from fedakd.compare.results import Results
from fedakd.errors import PlanError
from fedakd.figures import FORMS
from fedakd.paper import contributions, figures
from fedakd.paper.contributions import Held, told

DRAWERS = [figures.draw_contributions, figures.draw_costs, figures.draw_losses]


@pytest.mark.parametrize("draw", DRAWERS)
def test_figures_are_written_in_all_forms_with_their_numbers(results, tmp_path, draw):
    rows = draw(results, tmp_path / "new" / "figure")
    files = {path.suffix for path in (tmp_path / "new").iterdir()}
    assert files == {".csv", *(f".{form}" for form in FORMS)}
    with (tmp_path / "new" / "figure.csv").open() as file:
        stored = list(csv.DictReader(file))
    assert stored == [{name: str(value) for name, value in row.items()} for row in rows]
    assert {row["partition"] for row in rows} == {"pow(1)", "ics(2)"}


def one_seed(results: Results) -> Results:
    first = results.settings[0]
    cells = tuple(cell for cell in first.cells if cell.seed == 0)
    return replace(results, settings=(replace(first, cells=cells),))


@pytest.mark.parametrize("draw", DRAWERS)
def test_one_seed_of_one_setting_can_be_drawn(results, tmp_path, draw):
    assert {row["partition"] for row in draw(one_seed(results), tmp_path / "one")} == {"pow(1)"}


@pytest.mark.parametrize("draw", DRAWERS)
def test_nothing_to_draw_is_said(results, tmp_path, draw):
    with pytest.raises(PlanError):
        draw(replace(results, settings=()), tmp_path / "none")
    assert not list(tmp_path.iterdir())


# Figure 1 b-e


def contributed(results: Results) -> list[dict[str, Any]]:
    return contributions.contribution_rows(contributions.held(results))


def of(rows, **fields):
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


def test_methods_that_say_nothing_of_contributions_are_left_out(results):
    rows = contributed(results)
    assert {row["method"] for row in rows} == {"fedavg", "cffl", "cgsv", "fedave", "fedsac"}
    assert len(rows) == 5 * 2 * 2 * 6  # methods, settings, seeds, clients


def test_contributions_are_those_after_the_last_round(results):
    rows = contributed(results)
    for cell in (one for one in results.settings[0].cells if one.method == "cgsv"):
        own = of(rows, method="cgsv", seed=cell.seed, partition="pow(1)")
        assert [row["contribution"] for row in own] == cell.rounds[-1].contributions
        assert cell.rounds[-1].contributions != cell.rounds[0].contributions


def test_the_same_results_give_the_same_intervals(results):
    assert contributed(results) == contributed(results)


def test_what_fedavg_holds_a_client_to_contribute_is_its_share_of_rows(results):
    rows = contributed(results)
    for setting in results.settings:
        for seed, audit in setting.audits.items():
            sizes = np.array([client["train"]["rows"] for client in audit["clients"]])
            own = of(rows, method="fedavg", seed=seed, partition=setting.plan.partition)
            assert [row["contribution"] for row in own] == pytest.approx(list(sizes / sizes.sum()), abs=1e-6)


def test_the_correlation_is_pearsons_of_one_seed_with_the_accuracies_of_standalone(results):
    rows = contributed(results)
    for setting in results.settings:
        for cell in (one for one in setting.cells if one.method == "standalone"):
            alone = list(cell.rounds[-1].scores["personal/accuracy"].values())
            own = of(rows, method="cgsv", seed=cell.seed, partition=setting.plan.partition)
            assert [row["accuracy_alone"] for row in own] == alone
            expected = np.corrcoef(alone, [row["contribution"] for row in own])[0, 1]
            assert [row["r_of_seed"] for row in own] == pytest.approx([expected] * 6, abs=1e-9)
            assert -1 <= own[0]["r_low"] < own[0]["r_high"] <= 1


def test_a_seed_without_its_reference_is_left_out(results):
    first = results.settings[0]
    cells = tuple(cell for cell in first.cells if (cell.method, cell.seed) != ("standalone", 1))
    rows = contributed(replace(results, settings=(replace(first, cells=cells),)))
    assert {row["seed"] for row in rows} == {0}


def test_without_any_reference_the_methods_that_would_do_are_named(results, tmp_path):
    first = results.settings[0]
    cells = tuple(cell for cell in first.cells if cell.method != "standalone")
    with pytest.raises(PlanError, match="fedavg, cffl, cgsv, fedave, fedsac"):
        figures.draw_contributions(
            replace(results, settings=(replace(first, cells=cells),)), tmp_path / "one"
        )


def held(results: Results, seed: int, alone: list[float], shares: list[float]) -> Held:
    return Held(results.settings[0], "cffl", seed, tuple(alone), tuple(shares))


def test_seeds_are_not_pooled(results):
    """Within each of these seeds r is 1; over both together it would be negative."""
    first = held(results, 0, [0.1, 0.2, 0.3, 0.4, 0.5], [0.61, 0.62, 0.63, 0.64, 0.65])
    second = held(results, 1, [0.6, 0.7, 0.8, 0.9, 1.0], [0.11, 0.12, 0.13, 0.14, 0.15])
    assert told([first, second]).startswith("r = 1.00, seeds 1.00 to 1.00")


def test_mean_and_range_over_seeds_are_told(results):
    first = held(results, 0, [0.1, 0.2, 0.3], [1.0, 2.0, 3.0])
    second = held(results, 1, [0.1, 0.2, 0.3], [3.0, 2.0, 1.0])
    assert told([first, second]) == "r = 0.00, seeds -1.00 to 1.00\none seed alone: no interval"
    assert told([first]) == "r = 1.00, no interval"


def test_equal_contributions_have_no_correlation(results):
    even = held(results, 0, [0.1, 0.2, 0.3], [0.3, 0.3, 0.3])
    assert told([even]) == told([even, even]) == "r undefined: all clients alike"
    other = held(results, 1, [0.1, 0.2, 0.3], [1.0, 2.0, 3.0])
    assert told([even, other]).startswith("r = 1.00, seeds 1.00 to 1.00, undefined in 1")


def test_a_client_that_failed_is_no_point(results):
    one = held(results, 0, [0.1, math.nan, 0.3, 0.4], [1.0, 2.0, 3.0, math.nan])
    assert [client for client, _, _ in one.known] == [0, 2]


# Figure 3a


def costed(results: Results) -> list[dict[str, Any]]:
    return [row for one in results.settings for row in figures.cost_rows(figures.costs(one))]


def slower(results: Results, factor: float) -> Results:
    def slow(cell):
        return replace(cell, rounds=[replace(one, seconds=factor * one.seconds) for one in cell.rounds])

    settings = [replace(one, cells=tuple(map(slow, one.cells))) for one in results.settings]
    return replace(results, settings=tuple(settings))


def test_seconds_are_of_a_round_with_their_spread_over_seeds(results):
    rows = costed(results)
    setting = results.settings[0]
    assert [row["method"] for row in of(rows, partition="pow(1)")] == list(setting.plan.methods)
    seconds = [fmean(r.seconds for r in cell.rounds) for cell in setting.cells if cell.method == "fedakd"]
    (row,) = of(rows, partition="pow(1)", method="fedakd")
    assert (row["seconds"], row["std"], row["seeds"]) == (
        pytest.approx(fmean(seconds)),
        pytest.approx(stdev(seconds)),
        2,
    )


def test_another_machine_changes_seconds_but_not_how_many_times_fedavg(results):
    rows, slow = costed(results), costed(slower(results, 8.0))
    assert [row["seconds"] for row in slow] == pytest.approx([8 * row["seconds"] for row in rows])
    assert [row["times_fedavg"] for row in slow] == pytest.approx([row["times_fedavg"] for row in rows])
    assert {row["times_fedavg"] for row in of(rows, method="fedavg")} == {1.0}
    assert {row["passes"] for row in of(rows, method="fedavg")} == {1.0}


def test_without_fedavg_there_is_nothing_to_relate_to(results, tmp_path):
    rows = figures.draw_costs(as_if(results, methods=("standalone", "fedakd")), tmp_path / "one")
    assert all(math.isnan(row["times_fedavg"]) for row in rows)


def test_seconds_that_were_not_kept_are_not_zero(results, tmp_path):
    with pytest.raises(PlanError, match="has the seconds of its rounds"):
        figures.draw_costs(slower(results, 0.0), tmp_path / "one")


# Figure 3b


def test_the_loss_is_the_mean_over_all_test_rows(results):
    curves = [curve for setting in results.settings for curve in figures.curves(setting)]
    rows = [row for curve in curves for row in figures.loss_rows(curve)]
    for setting in results.settings:
        for cell in (one for one in setting.cells if one.method in ("fedavg", "fedakd")):
            clients = setting.audits[cell.seed]["clients"]
            # under a shift all clients are judged on the whole pool, and count by their own size
            sizes = [(c["shift"] or {}).get("test_size") or c["test"]["rows"] for c in clients]
            own = of(rows, method=cell.method, seed=cell.seed, partition=setting.plan.partition)
            assert [row["round"] for row in own] == [1, 2, 3]
            for row, record in zip(own, cell.rounds, strict=True):
                losses = list(record.scores["global/loss"].values())
                assert row["loss"] == pytest.approx(np.average(losses, weights=sizes))


def test_a_method_without_a_global_model_is_told_from_the_others(results):
    curves = figures.curves(results.settings[0])
    labels = {curve.method: curve.label for curve in curves}
    assert labels["fedakd"] == "FedAKD"
    assert labels["cgsv"] == "CGSV (no global: personal)"
    assert "no global: personal" in labels["standalone"]


def test_a_round_without_any_loss_is_left_out(results):
    first = results.settings[0]
    cells = [
        replace(cell, rounds=[replace(cell.rounds[0], scores={}), *cell.rounds[1:]]) for cell in first.cells
    ]
    for curve in figures.curves(replace(first, cells=tuple(cells))):
        assert curve.rounds == [2, 3]


def test_only_the_methods_asked_for_are_drawn(results, tmp_path):
    rows = figures.draw_losses(results, tmp_path / "one", ["fedavg", "fedakd"])
    assert {(row["method"], row["view"]) for row in rows} == {("fedavg", "global"), ("fedakd", "global")}
    with pytest.raises(PlanError, match="none of feddc has a judged round"):
        figures.draw_losses(results, tmp_path / "one", ["feddc"])


def test_rounds_that_were_not_judged_are_no_points(tmp_path):
    setting = setting_of(tmp_path / "run", methods=("fedavg",), judge_every=2, model="linear", seeds=(0,))
    rows = figures.draw_losses(Results("", (setting,), tmp_path, ""), tmp_path / "one", ["fedavg"])
    assert [row["round"] for row in rows] == [2, 3]


def test_a_loss_that_is_not_a_number_is_no_point(results):
    record = results.settings[0].cells[1].rounds[0]
    scores = {"global/loss": {0: 1.0, 1: math.nan, 2: 3.0}}
    assert figures.mean_loss(replace(record, scores=scores), "global", {0: 1, 1: 5, 2: 3}) == 2.5
    assert math.isnan(figures.mean_loss(replace(record, scores={}), "global", {0: 1}))


def test_contributions_are_drawn_from_beside():
    assert figures.draw_contributions is contributions.draw_contributions
