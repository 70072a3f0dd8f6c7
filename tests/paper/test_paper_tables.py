"""Our numbers stand beside the published ones, and bold is only what is significantly best."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import rankdata
from small_comparison import as_if, setting_of

from fedakd.cli.catalogue import put
from fedakd.compare.results import Results
from fedakd.errors import PlanError
from fedakd.fairness import Spread
from fedakd.paper import forms
from fedakd.paper.latex import latex
from fedakd.paper.published import published
from fedakd.paper.tables import Column, Entry, SubTable, subtables
from fedakd.ranking import Standing, standings
from fedakd.summary import named

VIEWS = {"fedavg": "global", "fedakd": "personal", "standalone": "personal", "cgsv": "personal"}


def final(setting, method: str) -> dict[int, list[float]]:
    """Seed -> every client's accuracy after the last round, straight from the cells."""
    scores = {c.seed: c.rounds[-1].scores for c in setting.cells if c.method == method}
    return {seed: list(own[f"{VIEWS[method]}/accuracy"].values()) for seed, own in scores.items()}


def measured(setting, method: str, measure: str) -> list[float]:
    accuracies, alone = final(setting, method), final(setting, "standalone")
    if measure == "cf":
        return [100 * np.corrcoef(alone[seed], own)[0, 1] for seed, own in accuracies.items()]
    return [(max if measure == "maximum" else fmean)(own) for own in accuracies.values()]


@pytest.mark.parametrize("measure", ["maximum", "average", "cf"])
@pytest.mark.parametrize("method", ["fedavg", "fedakd", "cgsv"])
def test_ours_are_mean_and_deviation_over_seeds(results, measure, method):
    (table,) = subtables(results, "table1", [measure])
    for setting, entry in zip(results.settings, table.rows[method], strict=True):
        values = measured(setting, method, measure)
        assert entry.ours.mean == pytest.approx(fmean(values), abs=1e-9)
        assert entry.ours.std == pytest.approx(stdev(values), abs=1e-9)
        assert entry.ours.count == 2


def test_every_measure_has_its_table_with_all_methods_but_the_reference_in_cf(results):
    tables = subtables(results, "table1")
    assert [table.measure for table in tables] == ["maximum", "average", "cf"]
    most, average, cf = (list(table.methods) for table in tables)
    assert most == average == list(results.settings[0].plan.methods)
    assert cf == most[1:]


def test_the_published_number_of_the_same_dataset_and_partition_is_beside_ours(results):
    ours = as_if(results, dataset="cifar10")
    for table in subtables(ours, "table1"):
        for method, own in table.methods.items():
            expected = [
                published("table1").value(table.measure, "cifar10", p, method) for p in ("pow", "ics(2)")
            ]
            assert [entry.published for entry in own] == expected
            for entry in own:
                assert entry.difference == entry.ours.mean - entry.published.mean


def test_digits_have_no_published_numbers(results):
    (table,) = subtables(results, "table1", ["cf"])
    entries = [entry for own in table.methods.values() for entry in own]
    assert all(entry.published is None and math.isnan(entry.difference) for entry in entries)
    assert "published" not in forms.markdown(table)


def test_places_are_those_of_the_standings_of_each_column(results):
    (table,) = subtables(results, "table1", ["average"], seed=3)
    for k, setting in enumerate(results.settings):
        expected = standings(setting.scores("average"), rng=np.random.default_rng(3))
        assert {method: own[k].ours for method, own in table.methods.items()} == expected


def test_the_same_results_give_the_same_table(results):
    assert subtables(results, "table1") == subtables(results, "table1")


def without(results: Results, method: str, at: int = 0) -> Results:
    kept = tuple(cell for cell in results.settings[at].cells if cell.method != method)
    settings = list(results.settings)
    settings[at] = replace(settings[at], cells=kept)
    return replace(results, settings=tuple(settings))


def test_a_column_without_its_reference_is_empty(results):
    both = subtables(results, "table1"), subtables(without(results, "standalone"), "table1")
    for whole, table in zip(*both, strict=True):
        assert all(own[0].ours is None for own in table.rows.values())
        assert {m: own[1] for m, own in table.rows.items()} == {m: own[1] for m, own in whole.rows.items()}


def test_a_cell_that_is_missing_is_empty_and_the_rest_is_there(results):
    (table,) = subtables(without(results, "cgsv", at=1), "table1", ["average"])
    missing = [(m, k) for m, own in table.rows.items() for k, entry in enumerate(own) if entry.ours is None]
    assert missing == [("cgsv", 1)]
    assert "| CGSV | " in forms.markdown(table)


def test_no_results_at_all_are_no_error(results):
    for table in subtables(replace(results, settings=()), "table1"):
        assert forms.terminal(table) == []
        assert forms.csv_rows(table) == []
        assert forms.markdown(table)
        assert latex(table)


def test_seeds_that_are_missing_are_told(results):
    cells = [c for c in results.settings[0].cells if (c.method, c.seed) != ("fedakd", 1)]
    fewer = replace(results, settings=(replace(results.settings[0], cells=tuple(cells)), results.settings[1]))
    (table,) = subtables(fewer, "table1", ["average"])
    assert "Over fewer seeds than planned: FedAKD digits pow(1) 1 of 2." in table.notes
    assert not any("fewer" in note for note in subtables(results, "table1", ["average"])[0].notes)


def test_the_same_partition_twice_is_told_apart_by_what_differs(results):
    first = results.settings[0]
    twin = replace(first, plan=first.plan.model_copy(update={"preset": "paper"}))
    (table,) = subtables(replace(results, settings=(first, twin)), "table1", ["cf"])
    assert [column.label for column in table.columns] == ["pow(1), preset tuned", "pow(1), preset paper"]


def test_an_unknown_measure_is_refused(results):
    with pytest.raises(PlanError, match="unknown measure 'accuracy'"):
        subtables(results, "table1", ["accuracy"])


def test_what_one_column_could_have_shown_is_told_by_its_seeds_alone(results):
    """Pairs of different columns would add the distance between settings to the chance between seeds."""
    (table,) = subtables(results, "table1", ["average"])
    (alone,) = subtables(replace(results, settings=results.settings[:1] * 2), "table1", ["average"])
    (single,) = subtables(replace(results, settings=results.settings[:1]), "table1", ["average"])
    assert table.notes[0].startswith("In one column: with 2 seeds and a typical standard deviation")
    assert alone.notes[0] == f"In one column: w{single.notes[0][1:]}"


def test_ranks_are_over_columns_by_their_means(results):
    (table,) = subtables(results, "table1", ["average"])
    means = np.array([[entry.ours.mean for entry in own] for own in table.methods.values()])
    ranks = rankdata(-means, axis=0).mean(1)
    assert table.notes[1].startswith("Mean ranks over 2 columns (1 is best): ")
    for method, rank in zip(table.methods, ranks, strict=True):
        assert f"{named(method)} {rank:.1f}" in table.notes[1]


def test_ranks_of_a_single_column_are_over_its_seeds(results):
    (table,) = subtables(replace(results, settings=results.settings[:1]), "table1", ["average"])
    assert table.notes[1].startswith("Mean ranks over 2 seeds")


def test_a_bold_number_of_the_paper_that_is_not_the_largest_is_told(results):
    cla = as_if(replace(results, settings=results.settings[:1]), dataset="cifar10", partition="cla")
    most, cf = subtables(cla, "table5", ["maximum", "cf"])
    assert "in bold for cifar10, cla, though the number of FedAvg is larger" in most.notes[-1]
    assert not any("in bold" in note for note in cf.notes)


def test_rounds_are_told_where_all_methods_had_the_same_time(results):
    timed = as_if(results, dataset="ehr", partition="group", equal_time="fedakd")
    (table,) = subtables(timed, "table3", ["cf"])
    assert "FedAvg 3 (80), CFFL 3 (43)" in table.notes[-1]
    assert table.notes[-1].startswith("Rounds in the time of FedAKD, ehr, group (published): Standalone 3,")


# forms, of a table made by hand


def standing(mean: float, place: str, std: float = 0.0384) -> Standing:
    return Standing(mean, std, 3, mean - 0.01, mean + 0.01, 0.04, place)


def by_hand(columns: int = 5, datasets: tuple[str, ...] = ("fashion-mnist", "cifar10"), **kind) -> SubTable:
    """Numbers as wide as they can be."""
    heads = tuple(Column(dataset, f"ics({k})", f"ics({k})") for dataset in datasets for k in range(columns))
    places = {"standalone": "behind", "fedavg": "tied", "fedakd": "best"}
    rows = {
        method: tuple(Entry(standing(-0.409, place), Spread(0.8802, 0.0209, 3)) for _ in heads)
        for method, place in places.items()
    }
    return SubTable(
        **{"table": "table1", "measure": "maximum", "columns": heads, "rows": rows, "notes": ()} | kind
    )


def printed(table: SubTable, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    for block in forms.terminal(table):
        assert put(console, *block.forms, title=block.title, whole=True)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [100, 200])
def test_a_terminal_of_100_columns_shows_five_partitions_whole(width):
    text = printed(by_hand(), width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("-40.9 ± 3.8 *") == text.count("-40.9 ± 3.8 =") == text.count("-40.9 ± 3.8 <") == 10
    assert text.count("(88.0, -128.9)") == 30
    assert [line for line in text.splitlines() if "Table 1" in line][1].strip().endswith("cifar10")


def test_more_partitions_go_into_further_blocks():
    blocks = forms.terminal(by_hand(columns=7))
    assert [len(block.forms[0][0]) for block in blocks] == [6, 3, 6, 3]


@pytest.mark.parametrize("width", [60, 200])
def test_numbers_stay_to_the_right_where_some_are_missing(width):
    table = by_hand(columns=3, datasets=("digits",))
    gaps = (Entry(), Entry(published=Spread(0.5, 0.1, 3)), Entry(standing(math.nan, "unknown", math.nan)))
    lines = printed(replace(table, rows={**table.rows, "cffl": gaps}), width).splitlines()
    wide = max(map(len, lines[1:]))
    assert all(len(line) == wide for line in lines[1:] if not line.startswith(" "))
    assert lines[-2 if width == 60 else -1].split()[:2] == ["CFFL", "-"]
    assert lines[-2 if width == 60 else -1].endswith("?")


def test_bold_is_for_the_best_alone():
    table = by_hand(columns=1, datasets=("digits",))
    text = forms.markdown(table)
    assert "| FedAKD | **-40.9 ± 3.8** (88.02 ± 2.09, -128.9) |" in text
    assert "| FedAvg | *-40.9 ± 3.8* (" in text
    assert "| Standalone | -40.9 ± 3.8 (" in text
    text = latex(table)
    assert r"FedAKD & \textbf{$-$40.9 $\pm$ 3.8} \\" in text
    assert r"FedAvg & \underline{$-$40.9 $\pm$ 3.8} \\" in text
    assert r"Standalone & $-$40.9 $\pm$ 3.8 \\" in text
    assert r" & {\scriptsize (88.02 $\pm$ 2.09, $-$128.9)} \\" in text


@pytest.mark.parametrize(
    ("form", "word"), [("terminal", r"\*:"), ("markdown", "Italic"), ("latex", "Underlined")]
)
def test_marks_are_explained_where_there_are_any(form, word):
    table = by_hand()
    assert sum(bool(re.search(word, note)) for note in forms.notes(table, form)) == 1
    nobody = {m: tuple(Entry(standing(0.5, "only")) for _ in own) for m, own in table.rows.items()}
    assert not any(re.search(word, note) for note in forms.notes(replace(table, rows=nobody), form))


def test_cf_is_not_a_percentage():
    rows = {"fedavg": (Entry(standing(45.25, "only", math.nan), Spread(45.0, 3.6, 3)),)}
    table = by_hand(columns=1, datasets=("digits",), measure="cf", rows=rows)
    assert "| FedAvg | 45.2 (45.00 ± 3.60, +0.2) |" in forms.markdown(table)
    assert "%" not in table.title


def test_latex_has_as_many_cells_in_every_line_and_escapes_names(results):
    rows = {"cffl(expel_by=share)": by_hand().rows["fedavg"], **by_hand().rows}
    text = latex(by_hand(rows=rows, notes=("95 % & more_",)))
    for tabular in re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", text, re.S):
        lines = [line for line in tabular.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert [line.count("&") for line in lines] == [5] * (1 + 2 * len(rows))
    assert r"CFFL(expel\_by=share)" in text
    assert r"95 \% \& more\_" in text
    assert text.count("{") == text.count("}")
    assert not re.search(r"(?<!\\)[_#]", text)


def test_csv_has_a_line_for_each_method_and_column(results):
    tables = subtables(as_if(without(results, "cgsv", at=1), dataset="cifar10"), "table1")
    for table in tables:
        rows = forms.csv_rows(table)
        assert len(rows) == len(table.rows) * 2
        for row in rows:
            if "/" in row["method"]:
                assert row["published_mean"] == row["difference"] == ""
                continue
            entry = table.rows[row["method"]][[c.partition for c in table.columns].index(row["partition"])]
            if entry.ours is None:
                assert (row["mean"], row["place"], row["n"], row["difference"]) == ("", "", 0, "")
                assert row["method"] == "cgsv"
                continue
            assert row["difference"] == pytest.approx(row["mean"] - row["published_mean"])
            assert row["mean"] == pytest.approx((1 if table.measure == "cf" else 100) * entry.ours.mean)
            assert (row["place"], row["n"]) == (entry.ours.place, 2)


def test_csv_rows_can_be_written_and_read(tmp_path):
    from fedakd.figures import write_csv

    rows = forms.csv_rows(by_hand())
    write_csv(tmp_path / "t.csv", rows)
    with (tmp_path / "t.csv").open() as file:
        stored = list(csv.DictReader(file))
    assert [(row["published_mean"], row["published_std"]) for row in stored] == [("88.02", "2.09")] * 30
    assert [(row["std"], row["low"], row["high"], row["p"]) for row in stored] == [
        ("3.84", "-41.9", "-39.9", "0.04")
    ] * 30


def test_both_models_of_fedakd_are_shown_and_only_one_competes(results: Results):
    table = subtables(results, "table1", ["average"])[0]
    assert [line for line in table.rows if "/" in line] == ["fedakd/global"]
    for setting, entry in zip(results.settings, table.rows["fedakd/global"], strict=True):
        row = next(one for one in setting.rows if (one.method, one.view) == ("fedakd", "global"))
        assert entry.ours.mean == pytest.approx(fmean(one.average for one in row.per_seed))
        assert entry.ours.place == "excluded"
        assert entry.published is None
    assert "FedAKD (global)" in forms.markdown(table)


def test_a_method_that_trained_on_test_rows_is_shown_and_does_not_compete(results: Results):
    table = subtables(as_if(results, preset="released"), "table1", ["average"])[0]
    assert {entry.ours.place for name in ("fedakd", "cffl", "cgsv") for entry in table.rows[name]} == {
        "excluded"
    }
    assert forms.UNTESTED in forms.markdown(table)
    leaky = ("FedAKD", "CFFL", "CGSV")
    assert all(f"| {name} (leaky) |" in forms.markdown(table) for name in leaky)
    assert "| FedAvg |" in forms.markdown(table)
    assert any("FedAvg" in note for note in table.notes)
    assert not any(name in note for note in table.notes for name in leaky)
    assert {line["method"] for line in forms.csv_rows(table) if line["leaky"]} >= {"fedakd", "cffl", "cgsv"}


def test_where_both_references_were_trained_gains_are_told_against_each(tmp_path):
    names = ("converged", "standalone(sgd=true)", "scaffold", "fedavg")
    setting = setting_of(tmp_path / "run", partition="pow", methods=names, model="linear", rounds=2)
    parts = {part.measure: part for part in subtables(Results("", (setting,), tmp_path, ""), "")}
    assert {"budget_gain", "converged_gain", "converged_cf"} <= set(parts)
    for measure in ("budget_gain", "converged_gain"):
        assert list(parts[measure].methods) == ["scaffold", "fedavg"], "clients alone gain nothing by joining"
        for method in ("scaffold", "fedavg"):
            (entry,) = parts[measure].rows[method]
            row = next(row for row in setting.rows if row.method == method and row.judged)
            assert entry.ours.mean == pytest.approx(row.spread[measure].mean)
    (plain,) = [note for note in parts["budget_gain"].notes if "plain SGD" in note]
    row = next(row for row in setting.rows if row.method == "scaffold" and row.judged)
    assert f"SCAFFOLD {100 * row.spread['sgd_gain'].mean:+.1f} (pow(1))" in plain
    assert "FedAvg" not in plain
    assert set(parts["average"].methods) == {"standalone", *names}
    places = {name: parts["average"].rows[name][0].ours.place for name in names}
    assert places["converged"] == places["standalone(sgd=true)"] == "excluded"
