"""The same tables as CSV, LaTeX and Markdown, and the command that writes them."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from parsed import made
from test_report_page import CLEAR, NASTY, single
from typer.testing import CliRunner

from fedakd import report
from fedakd.cli.report import report as command
from fedakd.compare.results import Results, Setting, read
from fedakd.errors import PlanError
from fedakd.fairness import Spread
from fedakd.paper import forms as paper
from fedakd.paper.latex import latex
from fedakd.paper.tables import Column, SubTable
from fedakd.paper.tables import Entry as PaperEntry
from fedakd.ranking import Standing
from fedakd.report.cautions import alarms, all_alarms
from fedakd.report.published import beside, printed


@pytest.fixture(scope="module")
def cli() -> typer.Typer:
    app = typer.Typer()
    app.command()(command)
    return app


def with_nasty(results) -> Results:
    setting = results.settings[0]
    cells = tuple(replace(c, method=NASTY) if c.method == "fedavg" else c for c in setting.cells)
    return replace(results, settings=(replace(setting, cells=cells), results.settings[1]))


def as_cifar(setting: Setting) -> Setting:
    return replace(setting, plan=setting.plan.model_copy(update={"dataset": "cifar10"}))


def test_csv_parses_back_to_the_stored_numbers(results):
    lines = list(csv.DictReader(io.StringIO(report.csv(results))))
    rows = [(setting, row) for setting in results.settings for row in setting.rows]
    assert len(lines) == len(rows)
    for line, (setting, row) in zip(lines, rows, strict=True):
        assert (line["partition"], line["method"], line["view"]) == (
            setting.plan.partition,
            row.method,
            row.view,
        )
        assert float(line["average"]) == row.spread["average"].mean
        assert float(line["cf"]) == row.spread["cf"].mean
        assert (float(line["gini"]) if line["gini"] else None) == (
            None if row.spread["gini"].defined == 0 else row.spread["gini"].mean
        )


def test_csv_says_how_long_and_on_what_share_of_the_rows(results):
    setting = results.settings[0]
    cells = [
        replace(one, rounds=one.rounds[: 2 + one.seed % 2], outcomes={}) for one in setting.cells
    ]  # outcomes are of the last round, which is cut off
    tenth = setting.plan.model_copy(update={"scale": 0.1})
    shorter = replace(setting, plan=tenth, cells=tuple(cells))
    for line in csv.DictReader(io.StringIO(report.csv(single(shorter)))):
        assert (float(line["rounds"]), float(line["scale"])) == (2.5, 0.1)


def test_csv_keeps_commas_and_quotes(results):
    lines = list(csv.DictReader(io.StringIO(report.csv(with_nasty(results)))))
    assert NASTY in {line["method"] for line in lines}
    assert all(None not in line and None not in line.values() for line in lines)


def test_latex_is_balanced_and_every_line_fills_its_columns(results):
    text = report.latex(with_nasty(results))
    assert re.findall(r"\\begin\{(\w+)\}", text) == ["table", "tabular"] * text.count(r"\begin{table}")
    assert sorted(re.findall(r"\\begin\{(\w+)\}", text)) == sorted(re.findall(r"\\end\{(\w+)\}", text))
    bare = re.sub(r"\\[\\&%$#_{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    for columns, body in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.S):
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len(lines) > 1
        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(columns) - 1}
    assert not re.search(r"(?<!\\)[#_]", re.sub(r"\\label\{.*?\}", "", text))
    assert r"\textless{}script\textgreater{}" in text


def test_bold_is_for_the_best_alone_in_every_form():
    clear, tied = single(made(CLEAR)), single(made(CLEAR | {"fedavg": [0.71, 0.70, 0.73, 0.69]}))
    row = next(line for line in report.latex(clear).splitlines() if line.startswith("FedAKD"))
    assert row.split(" & ")[1].startswith(r"\textbf{")
    assert not [
        line for line in report.latex(clear).splitlines() if line.startswith("FedAvg") and "textbf" in line
    ]
    assert r"\textbf" not in report.latex(tied)
    assert "$=$" in report.latex(tied)
    assert re.search(r"\| FedAKD \(personal\)\\\* \| \*\*", report.markdown(clear))
    assert "**" not in report.markdown(tied)
    places = [line["place_average"] for line in csv.DictReader(io.StringIO(report.csv(clear)))]
    assert places == ["", "", "best"]


def test_markdown_tables_are_whole_and_nothing_in_them_is_markup(results):
    text = report.markdown(with_nasty(results))
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert not re.search(r"(?<!\\)<", text)
    verdicts = [row.verdict for row in results.settings[1].rows if row.judged]
    assert all(f"- {one.split(':')[0]}:" in text for one in verdicts)


def test_markdown_tells_leaks_first_each_once_with_its_settings(leaky, results):
    found = read(leaky)
    setting = found.settings[0]
    other = replace(setting, plan=setting.plan.model_copy(update={"partition": "pow(2)"}))
    text = report.markdown(replace(found, settings=(setting, other)))
    top, verdict, _ = text.partition("## Verdict over all settings")
    assert verdict
    told = [line.removeprefix("- ") for line in top.splitlines() if line.startswith("- ")]
    assert [re.sub(r"\\(.)", r"\1", line) for line in told] == all_alarms([setting, other])
    assert len(told) == len(set(told)) > 0
    alone = report.markdown(found)
    for line in alarms(setting):
        assert re.sub(r"\\(.)", r"\1", alone.partition("\n## ")[0]).count(line) == 1
        assert re.sub(r"\\(.)", r"\1", alone).count(line) == 1
    assert "Not evidence" not in report.markdown(results)


def test_published_tables_carry_our_numbers_for_sorting(results):
    settings = tuple(map(as_cifar, results.settings))
    parts = printed(replace(results, settings=settings, table="table1"))
    for part, table in zip(parts, beside(parts), strict=True):
        for own, row in zip(part.rows.values(), table.rows, strict=True):
            assert row[0].value is None
            assert [one.value for one in row[1:]] == [one.ours.mean for one in own]


def test_published_tables_leave_unknown_numbers_unsorted(results):
    part = printed(replace(results, table="table1", settings=(as_cifar(results.settings[0]),)))[0]
    unknown = {
        name: tuple(replace(e, ours=None if k else replace(e.ours, mean=math.nan)) for e in own)
        for k, (name, own) in enumerate(part.rows.items())
    }
    (table,) = beside([replace(part, rows=unknown)])
    assert {one.value for row in table.rows for one in row} == {None}


def test_published_numbers_are_rounded_as_they_are_printed():
    """100 times 0.8915 is 89.14999999999999."""
    ours = Standing(0.8915, 0.0115, 3, 0.88, 0.9, 0.5, "tied")
    columns = (Column("digits", "ics(2)", "ics(2)"),)
    rows = {"fedavg": (PaperEntry(ours, Spread(0.8915, 0.0019, 3)),)}
    table = SubTable("table1", "average", columns, rows, ())
    assert paper.terminal(table)[0].forms[0][1] == [["FedAvg", "89.2 ± 1.1 = (89.2, +0.0)"]]
    assert "*89.2 ± 1.1* (89.15 ± 0.19, +0.0)" in paper.markdown(table)
    assert r"\underline{89.2 $\pm$ 1.1}" in latex(table)


@pytest.mark.parametrize(
    ("form", "name", "begins"),
    [
        ("html", "report.html", "<!DOCTYPE html>"),
        ("md", "report.md", "# digits"),
        ("csv", "report.csv", "dataset,"),
    ],
)
def test_the_command_writes_beside_the_results_and_says_where(cli, sized, form, name, begins):
    told = CliRunner().invoke(cli, [str(sized), "--format", form], catch_exceptions=False)
    assert told.output == f"written: {sized / name}\n"
    assert (sized / name).read_text().lstrip().startswith(begins)
    (sized / name).unlink()


def test_the_command_writes_where_it_is_told(cli, sized, tmp_path):
    out = tmp_path / "new" / "tables.tex"
    CliRunner().invoke(cli, [str(sized), "--format", "latex", "--out", str(out)], catch_exceptions=False)
    assert out.read_text() == report.latex(read(sized))


def test_a_folder_without_results_is_refused(cli, tmp_path):
    with pytest.raises(PlanError, match="holds no run"):
        CliRunner().invoke(cli, [str(tmp_path)], catch_exceptions=False)
    assert not list(Path(tmp_path).iterdir())
