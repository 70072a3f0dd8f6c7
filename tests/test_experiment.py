"""From a plan to numbers, in process."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from fedakd import summary, tables
from fedakd.correlation import cf_coefficient
from fedakd.data import load
from fedakd.drawn import contents, federation_of
from fedakd.errors import PlanError
from fedakd.experiment import carry_out
from fedakd.models import factory
from fedakd.plan import resolve
from fedakd.simulation import spec_of
from fedakd.training import Task
from test_runfolder import Silent, fresh, numbers, small


def run_of(path, **choices):
    plan = small(**choices)
    return carry_out(plan, fresh(path, plan), Silent(), workers=0), plan


def test_resuming_with_other_workers_changes_nothing(tmp_path):
    plan = small(model="cnn", rounds=2, methods=("fedakd", "fedavg"))
    for workers in (0, 1, 2):
        carry_out(plan, fresh(tmp_path / str(workers), plan), Silent(), workers=workers)
    rounds = [
        {
            name: data
            for name, data in numbers(tmp_path / str(w)).items()
            if name.endswith(("jsonl", "server.safetensors"))
        }
        for w in (0, 1, 2)
    ]
    assert rounds[0] == rounds[1] == rounds[2]
    assert not list((tmp_path / "2").glob("spool-*"))


def test_a_method_that_cannot_begin_says_so_before_another_trains(tmp_path):
    plan = small(clients=25, methods=("fedavg", "cffl(preset=paper)"))
    with pytest.raises(
        PlanError, match=r"cffl: .*expel=0\.05 expels all who are not above that; set expel_by=share"
    ):
        carry_out(plan, fresh(tmp_path / "run", plan), Silent(), workers=0)
    assert not list((tmp_path / "run").rglob("rounds.jsonl"))


def test_the_audit_is_stored_and_clean(tmp_path):
    run_of(tmp_path / "run")
    audit = json.loads((tmp_path / "run/audit-seed0.json").read_text())
    assert set(audit["shared"].values()) == {0}
    assert audit["partition"] == "ics(1)"


def test_released_without_its_leak_trains_on_the_rows_of_methods_that_never_leaked(tmp_path):
    few = {"clients": 3, "rounds": 2, "model": "linear", "methods": ("fedakd",), "partition": "ics(5)"}
    plan = resolve("released", leak=False, **few)
    alone, fedakd = carry_out(plan, fresh(tmp_path / "run", plan), Silent(), workers=0)
    assert fedakd.train_rows == alone.train_rows
    assert not (tmp_path / "run/audit-seed0-leaky.json").exists()
    assert json.loads((tmp_path / "run/audit-seed0.json").read_text())["shared"]["train/test"] == 0


def test_released_leaks_only_where_the_published_code_does(tmp_path):
    plan = resolve(
        "released", clients=3, rounds=2, model="linear", methods=("fedavg", "fedakd"), partition="ics(5)"
    )
    cells = carry_out(plan, fresh(tmp_path / "run", plan), Silent(), workers=0)
    assert [(cell.method, len(cell.rounds)) for cell in cells] == [
        ("standalone", 2),
        ("fedavg", 2),
        ("fedakd", 3),
    ]
    honest = json.loads((tmp_path / "run/audit-seed0.json").read_text())
    leaky = json.loads((tmp_path / "run/audit-seed0-leaky.json").read_text())
    assert honest["shared"]["train/test"] == 0
    assert leaky["shared"]["train/test"] == leaky["pools"]["test"]["distinct"]
    dataset = load("digits")
    parts = [federation_of(plan, dataset, 0, leak) for leak in (False, True)]
    assert all(np.array_equal(a, b) for a, b in zip(parts[0].test, parts[1].test, strict=True))


def test_released_has_no_label_shift():
    with pytest.raises(
        PlanError, match="preset released has only pow, bcs, ics; no code was published for cla"
    ):
        federation_of(resolve("released", partition="cla"), load("digits"), 0, leak=False)


def test_evaluation_can_be_chosen():
    dataset = load("digits")
    assert federation_of(resolve(partition="cla"), dataset, 0, False).evaluation == "global"
    assert (
        federation_of(resolve(partition="cla", evaluation="local"), dataset, 0, False).evaluation == "local"
    )


def test_contents_change_with_rows_and_data():
    dataset = load("digits")
    first, second = (federation_of(resolve(), dataset, seed, False) for seed in (0, 1))
    assert contents(first) == contents(federation_of(resolve(), dataset, 0, False))
    assert contents(first) != contents(second)


def test_the_summary_has_every_view_and_the_reference(tmp_path):
    cells, plan = run_of(tmp_path / "run", methods=("fedavg", "fedakd"), seeds=(0, 1))
    rows = summary.rows_of(cells)
    assert [row.label for row in rows] == [
        "Standalone",
        "FedAvg (global)",
        "FedAvg (trained)",
        "FedAKD (personal)",
        "FedAKD (global)",
    ]
    assert [row.judged for row in rows] == [True, True, False, True, False]
    reference = rows[0].per_seed
    assert all(one.cf == 100.0 and one.mean_gain == 0 for one in reference)
    by_hand = np.mean(list(cells[0].rounds[-1].scores["personal/accuracy"].values()))
    assert reference[0].average == pytest.approx(by_hand)
    headers, clients = tables.client_table(rows)
    assert headers == ["client", "alone", *(row.label for row in rows[1:])]
    both = [rows[1].accuracies[s][2] - rows[0].accuracies[s][2] for s in (0, 1)]
    spread = f"{100 * np.mean(both):+.1f} ± {100 * np.std(both, ddof=1):.1f}"
    assert clients[2][2] == spread
    text = tables.markdown(plan, cells, rows, ["a warning"])
    assert "**a warning**" in text
    assert all(row.verdict in text for row in rows)
    assert json.dumps(summary.to_dict(plan, rows, []), allow_nan=False)


def test_failures_and_budgets_are_told_in_the_summary(tmp_path):
    cells, plan = run_of(tmp_path / "run", methods=("fedavg",), max_gradients=500)
    broken = replace(cells[1].rounds[-1], failures={2: "round 2, client 2, step 7: the loss is nan"})
    cells[1] = replace(cells[1], rounds=[cells[1].rounds[0], broken])
    rows = summary.rows_of(cells)
    text = tables.markdown(plan, cells, rows, [])
    assert rows[1].failures == ["seed 0: round 2, client 2, step 7: the loss is nan"]
    assert "budget of 500 sample-gradients was used up" in rows[1].stopped[0]
    assert "## What went wrong" in text
    assert rows[1].failures[0] in text
    assert rows[1].stopped[0] in text


def failing_at(cell, clients):
    """The cell as it would be had these clients failed in the last round."""
    last = cell.rounds[-1]
    views = [name for name in last.scores if not name.startswith("global/") or len(clients) == 3]
    scores = last.scores | {
        name: {k: math.nan if k in clients else score for k, score in last.scores[name].items()}
        for name in views
    }
    failures = {k: f"round 3, client {k}, step 1: the loss is nan" for k in clients}
    return replace(cell, rounds=[*cell.rounds[:-1], replace(last, scores=scores, failures=failures)])


def test_a_client_that_failed_is_left_out_of_the_personal_view(tmp_path):
    cells, _ = run_of(tmp_path / "run", methods=("fedakd",))
    rows = summary.rows_of([cells[0], failing_at(cells[1], [1])])
    assert [row.per_seed[0].failed for row in rows] == [0, 1, 0]
    assert "1 failed client result left out" in rows[1].verdict
    rows = summary.rows_of([failing_at(cells[0], [1]), cells[1]])
    assert [row.per_seed[0].failed for row in rows] == [1, 1, 1]


def test_a_method_whose_clients_all_failed_has_a_row_that_says_so(tmp_path):
    cells, plan = run_of(tmp_path / "run", methods=("fedavg",))
    rows = summary.rows_of([cells[0], failing_at(cells[1], [0, 1, 2])])
    assert rows[1].failed
    assert "failed: no client could train" in rows[1].verdict
    assert tables.accuracy_line(rows[1])[:2] == ["FedAvg (global)*", "failed"]
    assert "unknown" in tables.markdown(plan, cells, rows, [])
    rows = summary.rows_of([failing_at(cells[0], [0, 1, 2]), cells[1]])
    assert rows[0].failed
    assert not rows[1].failed
    assert "nobody can say whether joining pays" in rows[1].verdict
    assert tables.accuracy_line(rows[1])[-2:] == ["unknown", "unknown"]
    json.dumps(summary.to_dict(plan, rows, []), allow_nan=False)


def test_one_method_that_fails_does_not_end_the_others(tmp_path):
    cells, plan = run_of(tmp_path / "run", methods=("fedakd(temperature=1e-45)", "fedavg"))
    assert [cell.method for cell in cells][-1] == "fedavg"
    assert cells[1].stopped.startswith("every client failed")
    assert len(cells[2].rounds) == 3
    assert "every client failed" in tables.markdown(plan, cells, summary.rows_of(cells), [])


def test_the_published_protocol_is_judged_by_the_global_model(tmp_path):
    cells, _ = run_of(tmp_path / "run", methods=("fedakd",))
    assert [row.judged for row in summary.rows_of(cells, "released")] == [True, False, True]


def test_notices_are_told_in_the_summary(tmp_path):
    cells, plan = run_of(tmp_path / "run", methods=("fedavg",))
    cells[1] = replace(cells[1], notices=("worker 0 died: signal 9",))
    assert "seed 0: worker 0 died: signal 9" in tables.markdown(plan, cells, summary.rows_of(cells), [])


def test_the_common_test_set_is_shared_and_not_copied():
    plan = resolve(partition="cla")
    federation = federation_of(plan, load("digits"), 0, False)
    spec = spec_of(plan.method("fedavg"), federation, Task(factory("linear", (1, 8, 8), 10)), plan.recipe, 0)
    assert all(rows.test is spec.clients[0].test for rows in spec.clients)


def test_one_seed_shows_each_clients_gain_with_its_interval(tmp_path):
    cells, _ = run_of(tmp_path / "run", methods=("fedavg",))
    row = summary.rows_of(cells)[1]
    _, clients = tables.client_table(summary.rows_of(cells))
    fair = row.per_seed[0]
    low, high = 100 * fair.gain_low[1], 100 * fair.gain_high[1]
    interval = "" if np.isnan(low) else f" ({low:.1f} to {high:.1f})"
    assert clients[1][2] == f"{100 * fair.gains[1]:+.1f}{interval}"
    told = tables.gain_of([replace(fair, gain_low=(-0.01,) * 3, gain_high=(0.02,) * 3)], 1)
    assert told == f"{100 * fair.gains[1]:+.1f} (-1.0 to 2.0)"


def test_a_linear_model_counts_its_passes(tmp_path):
    cells, _ = run_of(tmp_path / "run", methods=("fedavg",))
    assert [row.passes for row in summary.rows_of(cells)] == [3.0, 3.0, 3.0]
    cost = tables.costs(cells)["fedavg"]
    assert cost["passes"] == 1.0
    assert cost["megabytes_up"] == sum(r.bytes_up for r in cells[1].rounds) / 3e6 > 0
    assert cost["seconds"] == np.mean([r.seconds for r in cells[1].rounds])
    assert tables.cost_lines(cells)[1][:2] == ["FedAvg", "1.00"]


def test_a_machine_that_slept_during_one_seed_is_not_taken_for_the_methods_cost(tmp_path):
    cells, _ = run_of(tmp_path / "run", methods=("fedavg",), seeds=(0, 1, 2))
    *others, last = (cell for cell in cells if cell.method == "fedavg")
    slept = [replace(last.rounds[0], seconds=3600.0), *last.rounds[1:]]
    told = tables.costs([*others, replace(last, rounds=slept)])["fedavg"]["seconds"]
    assert told <= max(np.mean([r.seconds for r in one.rounds]) for one in others)


def test_on_one_common_test_set_a_method_is_judged_by_a_model_of_each_clients_own(tmp_path):
    cells, _ = run_of(tmp_path / "run", methods=("fedavg", "fedakd"), evaluation="global")
    judged = [row for row in summary.rows_of(cells) if row.judged]
    assert [row.label for row in judged] == ["Standalone", "FedAvg (trained)", "FedAKD (personal)"]
    shared = next(row for row in summary.rows_of(cells) if row.label == "FedAvg (global)")
    assert len(set(shared.accuracies[0])) == 1
    assert np.isnan(shared.per_seed[0].cf)
    assert len(set(judged[1].accuracies[0])) > 1


def test_many_methods_are_lines_of_the_clients_table_and_have_one_sentence_each(tmp_path):
    names = ("fedavg", "fedprox", "fedakd", "fedakd-all-data")
    cells, plan = run_of(tmp_path / "run", methods=names)
    rows = summary.rows_of(cells)
    headers, lines = tables.client_lines(rows, digits=1)
    assert headers == ["gain of client", "0", "1", "2"]
    judged = [row for row in rows if row.judged]
    assert [line[0] for line in lines] == ["accuracy alone", *(row.label for row in judged[1:])]
    gain = judged[2].per_seed[0].gains[1]
    assert lines[2][2] == f"{100 * gain:+.1f}"
    assert tables.client_lines(rows, digits=0)[1][2][2] == f"{100 * gain:+.0f}"
    text = tables.markdown(plan, cells, rows, [])
    assert all((row.verdict in text) == row.judged for row in rows)
    fair = judged[2].per_seed[0]
    assert tables.gain_of([fair], 1) in text
    assert f"| FedAKD | {tables.costs(cells)['fedakd']['passes']:.2f} |" in text


def test_a_cells_folder_says_every_field_that_determined_its_numbers(tmp_path):
    run_of(tmp_path / "run", methods=("fedprox(preset=released, mu=0.5)",))
    (path,) = (tmp_path / "run").glob("cells/fedprox*/cell.json")
    told = json.loads(path.read_text())
    assert told["method"] == {"type": "FedProx", "mu": 0.5, "weigh_by": "uniform"}
    assert (told["seed"], told["lr"]) == (0, 0.001)


def test_what_is_judged_on_too_few_effective_rows_by_force_is_marked_beside_its_numbers(tmp_path):
    cells, _ = run_of(tmp_path / "run", partition="ics(8, force=true)", methods=("fedavg",), clients=3)
    few = cells[0].few_test_rows
    assert few, "or the request would have been accepted without force"
    assert all(cells[0].effective_test_rows[k] < 100 for k in few)
    rows = summary.rows_of(cells)
    assert all(row.few_test_rows == set(few) for row in rows)
    _, lines = tables.accuracy_table(rows)
    assert all(line[0].endswith("!") for line in lines)
    _, clients = tables.client_table(rows)
    assert [line[0] for line in clients] == [f"{k}{'!' * (k in few)}" for k in range(3)]
    mild, _ = run_of(tmp_path / "mild", partition="ics(1)", methods=("fedavg",), clients=3)
    assert mild[0].few_test_rows == ()
    assert not any("!" in line[0] for line in tables.accuracy_table(summary.rows_of(mild))[1])


def test_gains_are_told_against_every_reference_there_is(tmp_path):
    names = ("converged", "standalone(sgd=true)", "scaffold", "fedavg")
    cells, plan = run_of(tmp_path / "run", methods=names, rounds=4, model="mlp")
    by_method = {cell.method: summary.accuracies(cell, summary.views_of(cell)[0]) for cell in cells}
    rows = {row.method: row for row in summary.rows_of(cells) if row.judged}
    for method in ("scaffold", "fedavg"):
        fairness, mine = rows[method].per_seed[0], by_method[method]
        for name, reference in (
            ("mean_gain", "standalone"),
            ("budget_gain", "standalone"),
            ("converged_gain", "converged"),
            ("sgd_gain", "standalone(sgd=true)"),
        ):
            gains = [after - before for after, before in zip(mine, by_method[reference], strict=True)]
            assert getattr(fairness, name) == pytest.approx(fmean(gains))
        assert fairness.converged_cf == pytest.approx(
            cf_coefficient(by_method["converged"], mine), nan_ok=True
        )
    headers, lines = tables.accuracy_table(list(rows.values()))
    assert headers[-2:] == ["gain over converged", "worse off"]
    assert lines[-1][-2] == f"{100 * rows['fedavg'].per_seed[0].converged_gain:+.1f}"
    assert [plan.needs_sgd(name) for name in plan.methods] == [False, False, False, True, False]


def test_the_reference_of_a_plan_is_what_gains_are_shown_against_first(tmp_path):
    cells, plan = run_of(tmp_path / "run", methods=("fedavg",), reference="converged", rounds=4)
    assert plan.methods == ("standalone", "converged", "fedavg")
    assert plan.rounds_of("converged") == 1
    usual, first = (summary.rows_of(cells, "tuned", name) for name in ("equal-budget", "converged"))
    before, after = ({row.method: row.per_seed[0] for row in rows if row.judged} for rows in (usual, first))
    assert after["fedavg"].mean_gain == before["fedavg"].converged_gain != before["fedavg"].mean_gain
    assert after["fedavg"].budget_gain == before["fedavg"].mean_gain
    assert after["fedavg"].cf == pytest.approx(before["fedavg"].cf, nan_ok=True), "always the equal budget"
    assert "over training alone to convergence" in first[-1].verdict
    assert tables.accuracy_table(first)[0][4:] == [
        *("gain over converged", "worse off"),
        *("gain over equal budget", "worse off"),
    ]


def test_a_reference_that_came_to_its_limit_says_so(tmp_path):
    cells, _ = run_of(tmp_path / "run", methods=("converged(limit=1)",), rounds=1)
    assert "clients 0, 1, 2" in cells[1].notices[0]
    assert cells[0].notices == ()


def test_a_verdict_tells_passes_where_they_differ(tmp_path):
    cells, _ = run_of(tmp_path / "run", methods=("fedakd", "fedavg"), rounds=4)
    verdicts = {row.method: row.verdict for row in summary.rows_of(cells) if row.judged}
    assert "passes over the training rows, alone 4.0" in verdicts["fedakd"]
    assert "passes" not in verdicts["fedavg"]


def test_the_converged_reference_trains_every_client_whoever_takes_part_in_a_round(tmp_path):
    cells, plan = run_of(tmp_path / "run", methods=("converged",), participation=0.34, rounds=2)
    assert plan.participation_of("standalone") == 0.34
    assert cells[0].rounds[0].participants != [0, 1, 2]
    assert cells[1].rounds[0].participants == [0, 1, 2]
