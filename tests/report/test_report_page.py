"""The page says what is stored, nothing else, and nothing in it can break out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsed import Page, made

from fedakd import report
from fedakd.compare.results import Results, read
from fedakd.errors import PlanError
from fedakd.intervals import client_interval, seed_interval
from fedakd.report.charts import looks, ticks

NASTY = "fedavg(<script>alert('x')</script>&\"|_%)"
CLEAR = {
    "standalone": [0.40, 0.41, 0.42, 0.40],
    "fedavg": [0.50, 0.51, 0.52, 0.505],
    "fedakd": [0.70, 0.712, 0.72, 0.701],
}


@pytest.fixture(scope="module")
def page(results) -> Page:
    return Page(report.html(results))


def single(setting, title="one") -> Results:
    return Results(title, (setting,), Path("folder"), "fedakd run")


def stored(folder: Path, method: str, seed: int) -> list[dict]:
    path = folder / "cells" / f"{method}-seed{seed}" / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def final(folder: Path, method: str, seed: int, view: str) -> list[float]:
    return list(stored(folder, method, seed)[-1]["scores"][f"{view}/accuracy"].values())


@pytest.mark.parametrize(
    ("label", "method", "view"),
    [("FedAvg (trained)", "fedavg", "trained"), ("CFFL (personal)*", "cffl", "personal")],
)
def test_accuracies_and_gains_are_those_of_the_stored_rounds(page, shifted, label, method, view):
    owns = [final(shifted, method, seed, view) for seed in (0, 1)]
    alones = [final(shifted, "standalone", seed, "personal") for seed in (0, 1)]
    changes = [[a - b for a, b in zip(*pair, strict=True)] for pair in zip(owns, alones, strict=True)]
    row = page.table("s1-accuracy")[label]
    averages = [fmean(own) for own in owns]
    shown = f"{100 * fmean(averages):.1f} ± {100 * stdev(averages):.1f}"
    assert row["average"].value == pytest.approx(fmean(averages), abs=1e-12)
    assert row["average"].text.removesuffix(" =") == shown
    assert row["max"].value == pytest.approx(fmean(map(max, owns)), abs=1e-12)
    assert row["mean gain"].value == pytest.approx(fmean(map(fmean, changes)), abs=1e-12)
    ends = 100 * seed_interval([fmean(own) for own in changes])[0], 100 * client_interval(changes)[0]
    assert [row["95 % interval"].value, row["clients as a sample"].value] == pytest.approx(ends, abs=1e-3)
    assert row["worse off"].text == f"{sum(one < -1e-6 for own in changes for one in own)} of 12"


def test_every_clients_numbers_are_the_stored_ones(page, shifted):
    rows = page.tables["s1-m2-numbers"][1:]  # CFFL, third after the reference
    audit = json.loads((shifted / "audit-seed1.json").read_text())
    shares = stored(shifted, "cffl", 1)[-1]["contributions"]
    assert len(rows) == 12
    for client, row in enumerate(rows[6:]):
        numbers = [cell.value for cell in row]
        assert numbers[:2] == [client, 1]
        assert numbers[2] == final(shifted, "standalone", 1, "personal")[client]
        assert numbers[3] == final(shifted, "cffl", 1, "personal")[client]
        given_ = audit["clients"][client]
        assert numbers[7:] == [given_["shift"]["gaussian_kl"], given_["train"]["rows"], shares[client]]


def test_the_overview_repeats_the_numbers_of_the_settings(page):
    for at, name in enumerate(("s1-accuracy", "s2-accuracy"), 1):
        whole = page.tables["overview-average"]
        values = {row[0].text: row[at].value for row in whole[1:]}
        assert values["FedAKD"] == page.table(name)["FedAKD (personal)*"]["average"].value
        assert values["Standalone"] == page.table(name)["Standalone"]["average"].value


def test_costs_and_audit_are_the_stored_ones(page, sized):
    rounds = [record for seed in (0, 1) for record in stored(sized, "scaffold", seed)]
    row = page.table("s2-cost")["SCAFFOLD"]
    assert row["MB up a round"].value == pytest.approx(fmean(r["bytes_up"] for r in rounds) / 1e6)
    audit = json.loads((sized / "audit-seed0.json").read_text())
    given_ = page.table("s2-seed0-given")
    assert [given_[str(k)]["train"].value for k in range(6)] == [c["train"]["rows"] for c in audit["clients"]]
    assert page.table("s2-seed0-pools")["test"]["distinct"].value == audit["pools"]["test"]["distinct"]


def test_curves_have_the_judged_rounds_alone_and_end_where_the_table_stands(page, shifted):
    curve = page.table("s1-accuracy-curve-numbers")
    assert list(curve) == ["2", "3"]  # judge_every=2, and the last
    second = [
        fmean(stored(shifted, "cffl", seed)[1]["scores"]["personal/accuracy"].values()) for seed in (0, 1)
    ]
    assert curve["2"]["CFFL (personal)"].value == pytest.approx(100 * fmean(second))
    last = page.table("s1-accuracy")["CFFL (personal)*"]["average"].value
    assert curve["3"]["CFFL (personal)"].value == pytest.approx(100 * last)
    cf = page.table("s1-fairness")["CFFL (personal)*"]["CF"].value
    assert page.table("s1-cf-curve-numbers")["3"]["CFFL (personal)"].value == pytest.approx(cf)
    assert list(page.table("s2-accuracy-curve-numbers")) == ["1", "2", "3"]


def test_verdicts_come_first_and_are_those_of_the_rows(results):
    html = report.html(single(results.settings[0]))
    text = " ".join(html.split())
    for row in results.settings[0].rows:
        if row.judged:
            rest = row.verdict.removeprefix(f"{row.label}: ")
            assert f"<strong>{row.label}:</strong> {rest}" in text
    first = min(html.index("<table"), html.index('role="img"'))
    assert html.index("<h3>Verdict</h3>") < first


def test_the_same_results_give_the_same_bytes(results, shifted, sized):
    again = replace(results, settings=(*read(shifted).settings, *read(sized).settings))
    for form in (report.html, report.markdown, report.latex, report.csv):
        assert form(results) == form(again)


def test_nothing_that_is_stored_can_break_out(results):
    setting = results.settings[0]
    cells = tuple(replace(c, method=NASTY) if c.method == "fedavg" else c for c in setting.cells)
    audits = {
        seed: {**one, "warnings": ["</li><script>alert(2)</script>"]} for seed, one in setting.audits.items()
    }
    versions = {"</table><script>": "<img src=x onerror=alert(3)>"}
    broken = replace(setting, cells=cells, audits=audits, versions=versions)
    evil = Results(
        "</title><script>alert(4)</script>", (broken, results.settings[1]), Path("a<b"), "</code><b>x"
    )
    plain, read_back = Page(report.html(results)), Page(report.html(evil))
    for kind in ("script", "img", "b", "style", "iframe"):
        assert len(read_back.all(kind)) == len(plain.all(kind))
    assert not [one for tag in read_back.tags for one in tag.attributes if one.startswith("on")]
    label = "FedAvg" + NASTY.removeprefix("fedavg")
    assert f"{label} (global)*" in read_back.table("s1-accuracy")
    assert next(tag.text for tag in read_back.all("title")) == "</title><script>alert(4)</script>"


def test_the_page_asks_for_nothing(page):
    places = [tag.attributes.get(key) for tag in page.tags for key in ("src", "href", "action", "xlink:href")]
    assert all(place is None or place.startswith(("#", "data:")) for place in places)
    names = {tag.attributes["id"] for tag in page.tags if "id" in tag.attributes}
    links = [tag.attributes["href"][1:] for tag in page.all("a")]
    assert links
    assert set(links) <= names


def test_everything_has_a_name_for_those_who_do_not_see_it(page):
    ids = [tag.attributes["id"] for tag in page.tags if "id" in tag.attributes]
    assert len(ids) == len(set(ids))
    charts = [tag for tag in page.all("svg") if tag.attributes.get("aria-hidden") != "true"]
    for chart in charts:
        assert chart.attributes["role"] == "img"
        assert chart.children[:2] == ["title", "desc"]
        assert set(chart.attributes["aria-labelledby"].split()) <= set(ids)
    levels = [int(tag.name[1]) for tag in page.tags if tag.name in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(tag.attributes.get("scope") in ("row", "col") for tag in page.all("th"))
    assert all(tag.children[:1] == ["caption"] for tag in page.all("table"))


def test_every_setting_has_its_charts(page):
    figures = {tag.attributes["id"] for tag in page.all("figure")}
    for name in ("s1", "s2"):
        assert {
            f"{name}-{one}" for one in ("gains", "cf", "accuracy-curve", "cf-curve", "seconds", "passes")
        } <= figures
        assert {f"{name}-megabytes_up", f"{name}-megabytes_down"} <= figures
        for method in range(4):
            assert {f"{name}-m{method}-dumbbell", f"{name}-m{method}-fairness"} <= figures
    assert "s1-m0-shift" in figures
    assert "s2-m0-shift" not in figures  # sizes differ, inputs do not: gains are shown against sizes
    assert "s2-m0-rows" in figures
    assert {"s1-m0-contribution", "s1-m2-contribution"} <= figures  # FedAvg's shares, CFFL's reputations
    assert "s1-m3-contribution" not in figures  # SCAFFOLD keeps none


def test_only_the_best_is_bold_and_ties_are_marked():
    clear = Page(report.html(single(made(CLEAR))))
    column = {name: row["average"] for name, row in clear.table("s1-accuracy").items()}
    assert [name for name, cell in column.items() if cell.bold] == ["FedAKD (personal)*"]
    assert not [cell for cell in column.values() if cell.kind == "tie"]
    near = Page(report.html(single(made(CLEAR | {"fedavg": [0.71, 0.70, 0.73, 0.69]}))))
    column = {name: row["average"] for name, row in near.table("s1-accuracy").items()}
    assert not [name for name, cell in column.items() if cell.bold]
    assert [name for name, cell in column.items() if cell.kind == "tie"] == [
        "FedAvg (personal)*",
        "FedAKD (personal)*",
    ]


def test_one_seed_makes_no_winner():
    once = {name: own[:1] for name, own in CLEAR.items()}
    cells = [
        cell
        for table in Page(report.html(single(made(once)))).tables.values()
        for row in table
        for cell in row
    ]
    assert not [cell for cell in cells if cell.bold or cell.kind]


def test_a_leak_is_told_before_everything_else(leaky):
    html = report.html(read(leaky))
    assert html.index("LEAKY BY DESIGN: trained on their own test rows: fedakd") < html.index("<h2>")
    rows = Page(html).table("s1-accuracy")
    assert "FedAKD (global)* (leaky)" in rows
    assert "FedAvg (global)*" in rows
    assert "LEAKY BY DESIGN" in report.markdown(read(leaky))
    assert "LEAKY BY DESIGN" in report.latex(read(leaky))


def test_clients_that_failed_and_cells_that_are_missing_are_told_of():
    setting = made(CLEAR)
    nothing = {"personal/accuracy": dict.fromkeys(range(6), math.nan)}
    reasons = dict.fromkeys(range(6), "not finite")
    broken = [
        replace(c, rounds=[*c.rounds[:-1], replace(c.rounds[-1], scores=nothing, failures=reasons)])
        if c.method == "fedavg"
        else c
        for c in setting.cells
        if (c.method, c.seed) != ("fedakd", 3)
    ]
    plan = setting.plan.model_copy(update={"methods": ("standalone", "fedavg", "fedakd")})
    page = Page(report.html(single(replace(setting, cells=tuple(broken), plan=plan))))
    assert page.table("s1-accuracy")["FedAvg (personal)*"]["average"].text == "failed"
    told = " ".join(tag.text for tag in page.all("li"))
    assert "Not complete: 11 of 12 cells are done; missing: fedakd seed 3" in told
    assert "failed: no client could train" in told


def test_results_without_anything_are_refused():
    setting = made(CLEAR)
    waiting = replace(setting, cells=tuple(c for c in setting.cells if c.method != "standalone"))
    for form in (report.html, report.markdown, report.latex, report.csv):
        with pytest.raises(PlanError, match="folder holds no results yet"):
            form(single(waiting))
    both = Results("both", (setting, waiting), Path("folder"), "x")
    assert "Not yet done" in report.html(both)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_evenly_spaced_within_the_ends(low, length):
    found = ticks(low, low + length)
    assert 1 <= len(found) <= 8
    assert all(low - 1e-6 * length <= one <= low + length + 1e-6 * length for one in found)
    steps = [b - a for a, b in pairwise(found)]
    assert all(math.isclose(one, steps[0], rel_tol=1e-3) for one in steps)


def test_thirteen_methods_look_different():
    names = ["standalone", *(f"m{k}" for k in range(17))]
    drawn = looks(names)
    assert list(drawn) == names
    assert len({(one.hue, one.dash) for one in drawn.values()}) == 18
