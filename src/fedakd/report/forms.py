"""The tables of a report as Markdown, LaTeX and CSV."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from statistics import fmean

from fedakd.compare.results import Results, Setting
from fedakd.fairness import Spread
from fedakd.paper import forms as paper
from fedakd.paper.latex import escaped, floated, header
from fedakd.paper.latex import latex as paper_latex
from fedakd.plan import is_reference
from fedakd.report import tables
from fedakd.report.cautions import alarms, all_alarms, notes
from fedakd.report.page import settings_of
from fedakd.report.published import printed
from fedakd.report.sentences import across, verdicts, winners
from fedakd.report.standing import places
from fedakd.report.table import BEST, TIE, Entry, Table
from fedakd.summary import Row
from fedakd.tables import costs, markdown_table

SPREADS = ("average", "maximum", "minimum", "cf", "spearman", "jain", "gini")
NOT_EVIDENCE = "Not evidence: part of this does not follow the leak-free protocol."
LEAKY, PARTLY_LEAKY = " (leaky: not evidence)", " (in part leaky: that is not evidence)"
STAR = "*: of a method's models, the one it is judged by."


def markdown(results: Results) -> str:
    """Leaks first, then verdicts, then the tables; best in bold, ties with =."""
    shown = settings_of(results)
    parts = [f"# {_plain(results.title)}"]
    if warnings := all_alarms(shown):
        parts += [f"**{NOT_EVIDENCE}**", _list(warnings)]
    if len(shown) > 1:
        parts += [
            "## Verdict over all settings",
            _list([*(one.sentence for one in across(shown)), *winners(shown)]),
        ]
        parts += [_markdown(tables.overview(shown, one)) for one in tables.OVERVIEW]
    for at, setting in enumerate(shown, 1):
        parts += _section(setting, f"s{at}", alarms(setting) if len(shown) > 1 else [])
    parts += [tables.marks(shown)]
    if known := printed(results):
        parts += ["## Beside the published numbers", *(paper.markdown(one).strip() for one in known)]
    parts += ["## Repeat it", "\n".join(f"    {line}" for line in results.command.splitlines())]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(setting: Setting, name: str, warnings: Sequence[str]) -> list[str]:
    found = [tables.accuracy, tables.fairness, tables.clients, tables.cost]
    return [
        f"## {_plain(setting.label)}",
        "\n\n".join(f"**{_plain(one)}**" for one in warnings),
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
    """Floats for a paper, a page for each setting; best in bold, ties with =."""
    shown = settings_of(results)
    parts = [r"% Needs \usepackage{booktabs} and \usepackage{graphicx}.", _warned(all_alarms(shown))]
    parts += _overviews(shown) if len(shown) > 1 else []
    for at, setting in enumerate(shown, 1):
        parts += [_warned(alarms(setting)) if len(shown) > 1 else "", *_floats(setting, f"s{at}")]
    if known := printed(results):
        parts += [*(paper_latex(one, _leaky(shown)).strip() for one in known), r"\clearpage"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _warned(lines: Sequence[str]) -> str:
    told = (f"{line[0].upper()}{line[1:].rstrip('.')}." for line in lines)
    return rf"\paragraph{{{NOT_EVIDENCE}}} {escaped(' '.join(told))}" if lines else ""


def _leaky(settings: Sequence[Setting]) -> str:
    """For captions."""
    leaking = [bool(setting.plan.spoiled) for setting in settings]
    return LEAKY if all(leaking) else PARTLY_LEAKY if any(leaking) else ""


def _overviews(shown: Sequence[Setting]) -> list[str]:
    found = []
    for at, part in enumerate(_parts(shown)):
        made = [tables.overview(part, measure) for measure in tables.OVERVIEW]
        own = [replace(one, name=f"{one.name}-{at + 1}" if at else one.name) for one in made]
        found += [*(_latex(one, _leaky(part), tables.marks(part)) for one in own), r"\clearpage"]
    return found


def _parts(shown: Sequence[Setting]) -> list[Sequence[Setting]]:
    """As many settings as fit beside each other, by dataset where datasets have several."""
    datasets = {setting.plan.dataset for setting in shown}
    by = groupby(shown, lambda setting: setting.plan.dataset if 2 * len(datasets) <= len(shown) else "")
    alike = [list(own) for _, own in by]
    return [own[k : k + paper.WIDEST] for own in alike for k in range(0, len(own), paper.WIDEST)]


def _floats(setting: Setting, name: str) -> list[str]:
    where = f" in {setting.label}{_leaky([setting])}"
    compared = [tables.accuracy(setting, name), tables.fairness(setting, name)]
    floats = [_latex(one, where, tables.marks([setting])) for one in compared]
    return [*floats, _latex(tables.cost(setting, name), where), r"\clearpage"]


def _latex(table: Table, where: str, marks: str = "") -> str:
    lines = [" & ".join(map(header, table.headers))]
    tied = [any(one.place == TIE for one in column) for column in zip(*table.rows, strict=True)]
    lines += [" & ".join(map(_marked_latex, row, tied)) for row in table.rows]
    starred = any("*" in row[0].text for row in table.rows) and STAR not in table.note
    notes = [note for note in (table.note, STAR * starred, marks) if note]
    columns = "l" + "r" * (len(table.headers) - 1)
    return floated(table.name, f"{table.caption}{where}", columns, lines, notes)


def _marked_latex(entry: Entry, tied: bool) -> str:
    """Where others of the column are tied, numbers without that mark leave room for it."""
    text = escaped(entry.text)
    room = r"\phantom{ $=$}" if tied and text else ""
    return {BEST: rf"\textbf{{{text}}}{room}", TIE: f"{text} $=$"}.get(entry.place, f"{text}{room}")


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
            "scale": plan.scale,
            "rounds": fmean(row.rounds),
            **_numbers(row),
            **{f"place_{one}": own.get(row.method, "") if row.judged else "" for one, own in marked.items()},
            **spent[row.method],
            "leaky": plan.spoils(row.method),
        }
        for row in setting.rows
    ]


def _numbers(row: Row) -> dict[str, object]:
    spread = row.spread
    found: dict[str, object] = {}
    for one in SPREADS:
        found |= _both(one, spread[one])
    found |= {"cf_low": _known(spread["cf_low"].mean), "cf_high": _known(spread["cf_high"].mean)}
    names = ("gain", "gain_low", "gain_high", "sample_gain_low", "sample_gain_high")
    ends = dict(zip(names, map(_known, (*tables.gain(row), *tables.sample(row))), strict=True))
    compared = [one for one in row.per_seed if one.worse_off is not None and not is_reference(row.method)]
    worse = sum(one.worse_off or 0 for one in compared) if compared else ""
    return {**found, **ends, "worse_off": worse, "client_results": sum(one.clients for one in row.per_seed)}


def _both(name: str, spread: Spread) -> dict[str, object]:
    return {name: _known(spread.mean), f"{name}_std": _known(spread.std)}


def _known(value: float) -> float | str:
    return "" if math.isnan(value) else value
