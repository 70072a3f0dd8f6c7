r"""The report as LaTeX: floats that stand alone, fit on a page and can be compiled by plain pdflatex."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from parsed import made
from test_report_forms import with_nasty
from test_report_page import CLEAR, single

from fedakd import report
from fedakd.compare.results import Results, Setting, read
from fedakd.paper.forms import WIDEST
from fedakd.paper.latex import LATEX, escaped
from fedakd.report import tables
from fedakd.report.cautions import alarms, all_alarms

DOCUMENT = r"""\documentclass{article}
\usepackage{booktabs}
\usepackage{graphicx}
\begin{document}
%s
\end{document}
"""
SIGNS = [*map(chr, (*range(32, 256), *range(0x391, 0x3CA))), *"−–—…≤≥≠≈∞→←≮łč中", "1\u202f000", "\U0001f600"]


def floats(text: str) -> list[str]:
    return re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, re.S)


def captions(text: str) -> list[str]:
    return re.findall(r"\\caption\{(.*)\}", text)


def published(results: Results, dataset: str = "fashion-mnist") -> Results:
    """As if they were of a dataset of the paper's first table."""
    settings = [
        replace(one, plan=one.plan.model_copy(update={"dataset": dataset})) for one in results.settings
    ]
    return replace(results, settings=tuple(settings), table="table1")


def many(count: int, datasets: tuple[str, ...] = ("digits",)) -> Results:
    """As many settings, all alike but for their names."""
    setting = made(CLEAR)
    first = setting.plan.model_copy(update={"partition": "ics(2)"})  # a column of the paper
    setting = replace(setting, plan=first)
    names = [
        {"partition": f"ics({k}, mode=ratio)", "dataset": datasets[k * len(datasets) // count]}
        for k in range(1, count)
    ]
    more = [replace(setting, plan=setting.plan.model_copy(update=one)) for one in names]
    return replace(single(setting), settings=(setting, *more))


@pytest.fixture(scope="module")
def twice_leaky(leaky) -> Results:
    found = read(leaky)
    setting = found.settings[0]
    other = replace(setting, plan=setting.plan.model_copy(update={"partition": "pow(2)"}))
    return replace(found, settings=(setting, other))


def test_every_table_is_a_float_with_caption_label_and_rules(results):
    text = report.latex(published(results))
    assert r"\usepackage{booktabs}" in text.splitlines()[0]
    assert r"\usepackage{graphicx}" in text.splitlines()[0]
    assert len(floats(text)) == text.count(r"\begin{tabular}") == 4 + 2 * 3 + 3
    for one in floats(text):
        assert one.startswith(r"\begin{table}[!htbp]")
        for command in ("caption{", "label{tab:", "toprule", "midrule", "bottomrule", "resizebox{"):
            assert one.count(f"\\{command}") == 1
        assert one.index(r"\caption") < one.index(r"\resizebox") < one.index(r"\begin{tabular}")
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert len(set(labels)) == len(labels)
    assert set(re.findall(r"\\ref\{(.*?)\}", text)) < set(labels)
    assert r"\hline" not in text


def test_published_numbers_are_in_floats_and_what_they_tell_is_below(results):
    text = report.latex(published(results))
    beside = [one for one in captions(text) if one.startswith("Ours beside the paper's Table 1: ")]
    assert [one.rpartition(", ")[2] for one in beside] == ["fashion-mnist"] * 3
    for one in floats(text)[-3:]:
        assert "in brackets the published number" in one.partition(r"\bottomrule")[2]
    assert text.count(r"\textbf{On Table~\ref{tab:published-") == 3


def test_a_shared_dataset_is_in_the_caption_and_in_no_header(results):
    for one in floats(report.latex(results))[: len(tables.OVERVIEW)]:
        assert captions(one)[0].endswith(", digits")
        head = one.partition(r"\toprule")[2].partition(r"\midrule")[0]
        assert "digits" not in head
        assert "pow(1)" in head


def test_no_table_has_more_columns_than_fit_beside_each_other():
    text = report.latex(many(12, ("digits", "fashion-mnist")))
    wide = [one for one in floats(text) if "tab:overview-average" in one]
    columns = [re.search(r"\\begin\{tabular\}\{l(r+)\}", one)[1] for one in wide]
    assert [len(one) for one in columns] == [5, 1, 5, 1]
    assert max(map(len, columns)) == WIDEST
    assert [captions(one)[0].rpartition(", ")[2] for one in wide] == ["digits"] * 2 + ["fashion-mnist"] * 2
    apart = many(4, ("digits", "fashion-mnist", "cifar10", "ehr"))
    assert report.latex(apart).count("tab:overview-average") == 1


def test_few_floats_wait_for_a_new_page():
    pages = report.latex(many(40)).split(r"\clearpage")
    assert [len(floats(page)) for page in pages] == [4] * 8 + [3] * 40 + [0]
    beside = report.latex(published(many(40))).split(r"\clearpage")[48:]
    assert sum(len(floats(page)) for page in beside) == 3 * 8
    assert max(len(floats(page)) for page in beside) <= 4


def test_leaks_are_told_before_the_tables_and_captions_stay_short(twice_leaky):
    text = report.latex(twice_leaky)
    top, *parts = text.split(r"\clearpage")
    begins = top.partition(r"\begin{table}")[0]
    for line in all_alarms(twice_leaky.settings):
        assert begins.count(escaped(line[1:])) == 1
    for setting, part in zip(twice_leaky.settings, parts, strict=False):
        begins, _, rest = part.partition(r"\begin{table}")
        for line in alarms(setting):
            told = escaped(line[1:].rstrip("."))
            assert begins.count(told) == 1
            assert told not in rest
    for caption in captions(text):
        assert caption.endswith("(leaky: not evidence)")
        assert len(caption) < 110


def test_only_what_leaks_is_called_leaky(results, twice_leaky):
    text = report.latex(results)
    assert "leaky" not in text
    assert "Not evidence" not in text
    mixed = replace(twice_leaky, settings=(twice_leaky.settings[0], results.settings[0]))
    told = {one.partition(" (")[2] for one in captions(report.latex(mixed)) if "client accuracy" in one}
    assert told == {"in part leaky: that is not evidence)"}
    alone = report.latex(replace(twice_leaky, settings=twice_leaky.settings[:1]))
    assert alone.count("Not evidence") == 1


def test_every_mark_is_explained_below_its_table(results):
    setting, text = results.settings[0], report.latex(results)
    below = {
        re.search(r"\\label\{tab:(.*?)\}", one)[1]: one.partition(r"\end{tabular}")[2] for one in floats(text)
    }
    for one in (tables.accuracy(setting, "s1"), tables.fairness(setting, "s1"), tables.cost(setting, "s1")):
        assert escaped(one.note) in below[one.name]
    for name in ("overview-average", "s1-accuracy", "s1-fairness"):
        assert escaped(tables.marks([setting])) in below[name]
    assert "Bold" not in below["s1-cost"]
    for name in ("s1-accuracy", "s1-fairness"):
        assert below[name].count("*: of a method's models") == 1


def test_numbers_below_zero_have_minus_signs(results):
    worse = {"standalone": [0.70, 0.72], "fedavg": [0.60, 0.63], "fedakd": [0.5, 0.6]}
    for shown in (single(made(worse)), published(results)):
        text = report.latex(shown)
        assert re.search(r"\$-\$\d", text)
        bodies = "".join(re.findall(r"\\midrule(.*?)\\bottomrule", text, re.S))
        assert not re.search(r"(?<!\$)-\d", bodies)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-1.5 to -.5 (-3)", r"$-$1.5 to $-$.5 ($-$3)"),
        ("fedakd-all-data, table-1, 3-4", "fedakd-all-data, table-1, 3-4"),
        ("1\u202f200 − 5 ≤ x × y…", r"1\,200 $-$ 5 $\le$ x $\times$ y\ldots{}"),
        ("αΔΑο", r"$\alpha$$\Delta$$A$$o$"),
        ("é č ł 中\t\n", "é c ? ?  "),
        (r"\a_b{c}%", r"\textbackslash{}a\_b\{c\}\%"),
    ],
)
def test_texts_are_made_safe(text, expected):
    assert escaped(text) == expected


def test_nothing_beyond_latin_1_is_left():
    safe = {chr(k): escaped(chr(k)) for k in range(0x10000)}
    assert all(max(told) <= "ÿ" for told in safe.values())
    assert safe["≮"] == safe["<"]
    assert {sign for sign, told in safe.items() if told == sign and sign < "\x80"} == {
        sign for sign in map(chr, range(32, 127)) if sign not in LATEX
    }


def overfull(log: str) -> list[float]:
    return [float(one) for one in re.findall(r"Overfull \\[hv]box \(([\d.]+)pt", log)]


def compiled(text: str, folder: Path) -> str:
    """What LaTeX said, the second time it read the document."""
    (folder / "report.tex").write_text(DOCUMENT % text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    for _ in range(2):
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    return (folder / "report.log").read_text(errors="replace")


def wide(setting: Setting) -> Setting:
    """With a name longer than any column has room for."""
    name = "fedavg(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=10)"
    cells = tuple(replace(one, method=name) if one.method == "fedavg" else one for one in setting.cells)
    return replace(setting, cells=cells)


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
@pytest.mark.parametrize("case", ["nasty", "published", "leaky", "many", "wide", "signs"])
def test_plain_pdflatex_compiles_it_and_nothing_is_too_wide(case, results, twice_leaky, tmp_path):
    texts = {
        "nasty": lambda: report.latex(with_nasty(results)),
        "published": lambda: report.latex(published(results)),
        "leaky": lambda: report.latex(twice_leaky),
        "many": lambda: report.latex(published(many(40))),
        "wide": lambda: report.latex(single(wide(made(CLEAR)))),
        "signs": lambda: escaped(" ".join(SIGNS)),
    }
    log = compiled(texts[case](), tmp_path)
    assert not re.search(r"^!|undefined references|Too many unprocessed floats", log, re.M)
    assert max(overfull(log), default=0) <= 5
