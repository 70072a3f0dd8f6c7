"""The tables of a report as Markdown, LaTeX and CSV."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import replace

from fedakd.compare.results import Results, Setting
from fedakd.fairness import Spread
from fedakd.paper import forms as paper
from fedakd.plan import REFERENCE
from fedakd.report import tables
from fedakd.report.page import settings_of
from fedakd.report.published import printed
from fedakd.report.sentences import across, alarms, notes, verdicts, winners
from fedakd.report.standing import places
from fedakd.report.table import BEST, TIE, Entry, Table
from fedakd.summary import Row
from fedakd.tables import costs, markdown_table

SPREADS = ("average", "maximum", "minimum", "cf", "spearman", "jain", "gini")
# What LaTeX reads as something else, or what its usual fonts lack.
LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "\n": " ",
}


def markdown(results: Results) -> str:
    """Verdicts first, then the tables; best in bold, ties with =."""
    shown = settings_of(results)
    parts = [f"# {_plain(results.title)}"]
    if len(shown) > 1:
        parts += [
            "## Verdict over all settings",
            _list([*(one.sentence for one in across(shown)), *winners(shown)]),
        ]
        parts += [_markdown(tables.overview(shown, one)) for one in tables.OVERVIEW]
    for at, setting in enumerate(shown, 1):
        parts += _section(setting, f"s{at}")
    parts += [tables.marks(shown)]
    if known := printed(results):
        parts += ["## Beside the published numbers", *(paper.markdown(one).strip() for one in known)]
    parts += ["## Repeat it", "\n".join(f"    {line}" for line in results.command.splitlines())]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(setting: Setting, name: str) -> list[str]:
    warnings = [f"**{_plain(one)}**" for one in alarms(setting)]
    found = [tables.accuracy, tables.fairness, tables.clients, tables.cost]
    return [
        f"## {_plain(setting.label)}",
        "\n\n".join(warnings),
        _list([one.sentence for one in verdicts(setting)]),
        _list(notes(setting)),
        *(_markdown(one(setting, name)) for one in found),
    ]


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_plain(line)}" for line in lines)


def _markdown(table: Table) -> str:
    rows = [[_marked_markdown(one) for one in row] for row in table.rows]
    parts = [
        f"### {_plain(table.caption)}",
        markdown_table([*map(_plain, table.headers)], rows),
        _plain(table.note),
    ]
    return "\n\n".join(part for part in parts if part)


def _marked_markdown(entry: Entry) -> str:
    text = _plain(entry.text)
    return {BEST: f"**{text}**", TIE: f"{text} ="}.get(entry.place, text)


def _plain(text: str) -> str:
    """No sign of the text is read as Markdown or HTML."""
    escaped = "".join(f"\\{sign}" if sign in "\\`*_[]<>|#&" else sign for sign in text)
    return escaped.replace("\n", " ")


def latex(results: Results) -> str:
    r"""Tables for a paper that says \usepackage{booktabs}; best in bold, ties with =."""
    shown = settings_of(results)
    found = [tables.overview(shown, one) for one in tables.OVERVIEW] if len(shown) > 1 else []
    for at, setting in enumerate(shown, 1):
        own = [part(setting, f"s{at}") for part in (tables.accuracy, tables.fairness, tables.cost)]
        label = ". ".join([setting.label, *alarms(setting)])
        found += [replace(table, caption=f"{table.caption}: {label}") for table in own]
    beside = [f"\n{paper.latex(one)}" for one in printed(results)]
    return "\n".join([r"% \usepackage{booktabs}", *map(_latex, found), *beside])


def _latex(table: Table) -> str:
    lines = [" & ".join(_latex_text(header) for header in table.headers)]
    lines += [" & ".join(_marked_latex(one) for one in row) for row in table.rows]
    head, *body = (rf"{line} \\" for line in lines)
    columns = "l" + "r" * (len(table.headers) - 1)
    parts = [
        "",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex_text(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join([*parts, ""])


def _marked_latex(entry: Entry) -> str:
    text = _latex_text(entry.text)
    return {BEST: rf"\textbf{{{text}}}", TIE: f"{text} $=$"}.get(entry.place, text)


def _latex_text(text: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in text)


def csv(results: Results) -> str:
    """One line for each setting, method and model, with unrounded numbers; what is undefined is empty."""
    from csv import DictWriter

    lines = [line for setting in settings_of(results) for line in _lines(setting)]
    out = io.StringIO()
    writer = DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def _lines(setting: Setting) -> list[dict[str, object]]:
    plan, spent = setting.plan, costs(setting.cells)
    marked = {measure: places(setting, measure) for measure in tables.OVERVIEW}
    return [
        {
            "dataset": plan.dataset,
            "partition": plan.partition,
            "preset": plan.preset,
            "method": row.method,
            "view": row.view,
            "judged": row.judged,
            "seeds": len(row.seeds),
            "clients": plan.clients,
            **_numbers(row),
            **{f"place_{one}": own.get(row.method, "") if row.judged else "" for one, own in marked.items()},
            **spent[row.method],
            "leaky": plan.leaks(row.method),
        }
        for row in setting.rows
    ]


def _numbers(row: Row) -> dict[str, object]:
    spread = row.spread
    found: dict[str, object] = {}
    for one in SPREADS:
        found |= _both(one, spread[one])
    found |= {"cf_low": _known(spread["cf_low"].mean), "cf_high": _known(spread["cf_high"].mean)}
    ends = dict(zip(("gain", "gain_low", "gain_high"), map(_known, tables.gain(row)), strict=True))
    compared = [one for one in row.per_seed if one.worse_off is not None and row.method != REFERENCE]
    worse = sum(one.worse_off or 0 for one in compared) if compared else ""
    return {**found, **ends, "worse_off": worse, "client_results": sum(one.clients for one in row.per_seed)}


def _both(name: str, spread: Spread) -> dict[str, object]:
    return {name: _known(spread.mean), f"{name}_std": _known(spread.std)}


def _known(value: float) -> float | str:
    return "" if math.isnan(value) else value
