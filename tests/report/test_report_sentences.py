"""Sentences over several settings say what the tables say, leaks first and ties as what they are."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest
from parsed import Page, made
from test_report_evidence import ahead_by_leaking
from test_report_page import CLEAR, single

from fedakd import report
from fedakd.compare.results import Results, Setting, read
from fedakd.report.cautions import alarms, all_alarms
from fedakd.report.facts import facts_of, judged_models, otherwise, setting_facts
from fedakd.report.picture import correlations, pictures
from fedakd.report.sentences import across, headline, verdicts, winners

LOST = {"standalone": [0.70, 0.71, 0.72, 0.70], "fedavg": [0.50, 0.51, 0.52, 0.505]}
NEAR = CLEAR | {"fedavg": [0.71, 0.70, 0.73, 0.69]}


def test_the_first_sentence_names_whom_joining_pays_with_most_often():
    assert headline([made(CLEAR), made(CLEAR)]) == (
        "Joining pays with FedAKD and FedAvg in every one of the 2 settings."
    )
    mixed = [made(CLEAR), made(LOST | {"fedakd": CLEAR["standalone"]})]
    assert headline(mixed) == (
        "Joining pays with FedAKD and FedAvg in 1 of 2 settings, more than with any other."
    )
    assert headline([made(LOST)] * 2) == "With no method joining clearly pays in any of the 2 settings."


def test_methods_come_in_the_order_of_what_joining_brings():
    found = across([made(CLEAR), made(CLEAR)])
    assert [(one.label, one.tone) for one in found] == [("FedAKD", "pays"), ("FedAvg", "pays")]
    assert [(one.label, one.tone) for one in across([made(LOST)] * 2)] == [("FedAvg", "costs")]


def test_one_client_result_is_and_several_are():
    one = made({"standalone": [0.5], "fedavg": [0.6]})
    assert "; 0 of 6 client results are worse off" in across([one])[0].rest
    first, second = one.cells
    last = second.rounds[-1]
    scores = {"personal/accuracy": {**last.scores["personal/accuracy"], 0: 0.1}}
    rounds = [*second.rounds[:-1], replace(last, scores=scores)]
    worse = replace(one, cells=(first, replace(second, rounds=rounds)))
    assert "; 1 of 6 client results is worse off" in across([worse])[0].rest


def test_what_leaks_gets_no_verdict_anywhere():
    setting = ahead_by_leaking()
    leaky = [one for one in verdicts(setting) if one.label.startswith("FedAKD")]
    assert [(one.label, one.tone) for one in leaky] == [("FedAKD (global) (leaky)", "")]
    assert leaky[0].rest.startswith("it has seen its own test rows, so its numbers are no evidence; ")
    assert "FedAKD" not in headline([setting, setting])
    last = across([setting, setting])[-1]
    assert last.sentence == "FedAKD (leaky): it has seen its own test rows, so its numbers are no evidence."


def test_the_overview_marks_the_methods_that_leak_and_no_others():
    setting = ahead_by_leaking()
    page = Page(report.html(replace(single(setting), settings=(setting, setting))))
    lines = [row[0].text for row in page.tables["overview-average"]]
    assert lines == ["method", "Standalone", "FedAvg", "FedAKD (leaky)"]


def test_nobody_is_called_best_for_want_of_seeds():
    both = winners([made(NEAR), made(NEAR)])
    assert both[0] == (
        "Average client accuracy: nobody is shown to be best in any of 2 settings. Shown to be worse than "
        "the largest: Standalone in digits, ics(1); Standalone in digits, ics(1)."
    )
    best = winners([made(NEAR), made(CLEAR)])[0]
    assert (
        "FedAKD is best of the 3 that compete in digits, ics(1); nobody is shown to be best in the other one."
        in best
    )
    assert winners([made({name: own[:1] for name, own in CLEAR.items()})]) == []


def test_one_seed_is_told_instead_of_marks_it_cannot_give():
    text = report.html(single(made({name: own[:1] for name, own in CLEAR.items()})))
    assert "There is one seed: no method can be called best" in text
    assert "Bold: best" not in text
    assert "Bold: best" in report.html(single(made(CLEAR)))


def test_an_alarm_of_all_settings_is_told_once(leaky):
    setting = read(leaky).settings[0]
    other = replace(setting, plan=setting.plan.model_copy(update={"partition": "pow(2)"}))
    merged = all_alarms([setting, other])
    assert len(merged) == len(set(merged)) < len(alarms(setting))
    assert all(one.endswith("(in all settings)") for one in merged)
    alone = all_alarms([setting, made(CLEAR)])
    assert all(one.endswith(f"(in {setting.label})") for one in alone)
    assert all_alarms([made(CLEAR)]) == []


def test_facts_tell_rows_rounds_and_shares(leaky, results):
    setting = results.settings[0]
    rows = sum(client["train"]["rows"] for one in setting.audits.values() for client in one["clients"])
    each = f"{rows / len(setting.audits):,.0f}".replace(",", " ")
    assert f"clients with {each} training rows in all, 3 rounds, seeds 0, 1" in setting_facts(setting)
    assert "(FedAKD 3)" in setting_facts(read(leaky).settings[0])  # half as many again as the others' 2
    tenth = replace(setting, plan=setting.plan.model_copy(update={"scale": 0.1}))
    assert setting_facts(tenth).endswith(", 0.1 of the training rows")
    assert facts_of([tenth, setting]).endswith("preset tuned · 0.1 or 1 of the training rows")
    assert "of the training rows" not in facts_of([setting])
    assert "Here: 0.1 of the training rows." in otherwise([tenth])


def test_the_judged_model_of_those_that_have_several_is_named(results):
    told = judged_models(results.settings)
    assert "FedAKD (personal)" in told
    assert "CFFL" not in told
    assert "FedAKD is judged by its personal model; the published code judges its global one." in otherwise(
        results.settings
    )


@pytest.fixture
def figure(tmp_path: Path) -> Results:
    shares = [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]
    setting: Setting = made({"standalone": CLEAR["standalone"], "fedavg": CLEAR["fedavg"]})
    cells = tuple(
        replace(c, rounds=[replace(c.rounds[-1], contributions=shares)]) if c.method == "fedavg" else c
        for c in setting.cells
    )
    (tmp_path / "figure1.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    return Results("Figure 1", (replace(setting, cells=cells),), tmp_path, "fedakd", "figure1")


def test_a_figure_of_the_paper_is_in_its_page_with_its_correlations_in_words(figure):
    (found,) = pictures(figure)
    assert base64.b64decode(found.source.partition("base64,")[2]).startswith(b"<svg")
    assert [line.partition(" = ")[0] for line in correlations(figure)] == ["digits, ics(1), FedAvg: r"]
    page = Page(report.html(figure))
    assert [tag.attributes["alt"] for tag in page.all("img")] == ["Figure 1; its numbers are in figure1.csv"]
    assert correlations(figure)[0] in " ".join(tag.text for tag in page.all("li"))


def test_a_figure_of_two_parts_shows_both_and_a_table_none(figure):
    for part in "ab":
        (figure.folder / f"figure3{part}.svg").write_text("<svg/>")
    both = pictures(replace(figure, table="figure3"))
    assert [one.alternative.split()[-1] for one in both] == ["figure3a.csv", "figure3b.csv"]
    assert correlations(replace(figure, table="figure3")) == []
    assert pictures(replace(figure, table="table1")) == []
