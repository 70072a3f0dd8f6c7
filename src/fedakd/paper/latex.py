"""A sub-table as LaTeX, and what every table in LaTeX shares: floats, and signs it would read otherwise."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from fedakd.paper.forms import cuts_of, notes, printed_beside, spread, title_of
from fedakd.paper.published import TITLES
from fedakd.paper.tables import Entry, SubTable

WAITING = 4  # floats on their way to a page: LaTeX gives up at 18, and wants text between them
ROOM = 3  # columns that leave room for a published number and the difference beside each other on a page


def latex(table: SubTable, remark: str = "") -> str:
    """Floats with the published numbers on lines of their own, and what all columns tell as a paragraph.

    Captions end with the remark. Needs the packages booktabs and graphicx.
    """
    cuts = cuts_of(table)
    names = [f"published-{table.measure}-{at}".replace("_", "-") for at in range(1, len(cuts) + 1)]
    floats = [_float(cut, name, remark) for cut, name in zip(cuts, names, strict=True)]
    floats[WAITING - 1 :: WAITING] = [f"{one}\n\n\\clearpage" for one in floats[WAITING - 1 :: WAITING]]
    told = " ".join(map(escaped, table.notes))
    below = [rf"\medskip{{\footnotesize\noindent {_about(names)}{told}\par}}"] if told else []
    return "\n\n".join([f"% {table.title}", *floats, *below]) + "\n"


def _about(names: Sequence[str]) -> str:
    ends = [rf"\ref{{tab:{name}}}" for name in dict.fromkeys([*names[:1], *names[-1:]])]
    return rf"\textbf{{On Table{'s' * (len(ends) > 1)}~{' to~'.join(ends)}.}} " if ends else ""


def _float(cut: SubTable, name: str, remark: str) -> str:
    caption = f"Ours beside the paper's {title_of(cut)}" if cut.table in TITLES else title_of(cut)
    lines = [" & ".join(map(header, ["method", *(column.label for column in cut.columns)]))]
    for method, own in cut.rows.items():
        lines.append(" & ".join([escaped(cut.line_of(method)), *(_set(entry, cut.factor) for entry in own)]))
        if any(entry.published for entry in own):
            lines[-1] = f"{APART}{lines[-1]}"
            lines.append(" & ".join(["", *(_set_below(entry, cut) for entry in own)]))
    columns = "l" + "c" * len(cut.columns)
    return floated(name, f"{caption}{remark}", columns, lines, notes(replace(cut, notes=()), "latex"))


APART = "\\addlinespace[2pt]\n"


def floated(name: str, caption: str, columns: str, lines: Sequence[str], notes: Sequence[str]) -> str:
    """A table that is made smaller if it is wider than the page; lines are LaTeX, other texts are not."""
    head, *body = (rf"{line} \\" for line in lines)
    below = rf"{{\raggedright {escaped(' '.join(notes))}\par}}"
    parts = [
        r"\begin{table}[!htbp]",
        r"\centering",
        rf"\caption{{{escaped(caption)}}}",
        rf"\label{{tab:{name}}}",
        r"\smallskip\footnotesize\setlength{\tabcolsep}{4pt}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}}",
        *([r"\par\medskip", below] if notes else []),
        r"\end{table}",
    ]
    return "\n".join(parts)


def header(text: str) -> str:
    """A name above a column, for LaTeX: on several lines if it is long."""
    lines = textwrap.wrap(text, 14, break_long_words=False, break_on_hyphens=False)
    told = r"\\".join(map(escaped, lines))
    return _stacked(told) if len(lines) > 1 else told


def _set(entry: Entry, factor: int) -> str:
    if not entry.ours:
        return "--"
    ours = escaped(spread(entry.ours, factor, 1) + entry.marks)
    around = {"best": r"\textbf", "tied": r"\underline"}.get(entry.ours.place)
    return f"{around}{{{ours}}}" if around else ours


def _set_below(entry: Entry, cut: SubTable) -> str:
    if not entry.published:
        return ""
    told = escaped(printed_beside(entry, cut.factor).strip())
    below = told.replace(", ", r")\\(")
    return rf"{{\scriptsize {told if len(cut.columns) <= ROOM else _stacked(below)}}}"


def _stacked(lines: str) -> str:
    """Lines as one cell, apart from what is above."""
    return rf"\shortstack{{\rule{{0pt}}{{7pt}}{lines}}}"


SMALL = r"\alpha \beta \gamma \delta \epsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi o \pi \rho "
SMALL += r"\varsigma \sigma \tau \upsilon \phi \chi \psi \omega"
LARGE = r"A B \Gamma \Delta E Z H \Theta I K \Lambda M N \Xi O \Pi P ? \Sigma T \Upsilon \Phi X \Psi \Omega"
# What LaTeX reads as something else, or what its usual fonts lack.
LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # at the beginning of a line it would be an option of the line before
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "·": r"$\cdot$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "≠": r"$\ne$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "→": r"$\to$",
    "←": r"$\gets$",
    "°": r"$^\circ$",
    "µ": r"$\mu$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "«": r"$\ll$",
    "»": r"$\gg$",
    "\u00a0": "~",
    "\u202f": r"\,",
    "\u2009": r"\,",
    **{chr(0x3B1 + k): f"${letter}$" for k, letter in enumerate(SMALL.split())},
    **{chr(0x391 + k): f"${letter}$" for k, letter in enumerate(LARGE.split())},
}


def escaped(text: str) -> str:
    """For LaTeX, with minus signs instead of hyphens before numbers.

    >>> escaped("cffl(expel_by=share) 90 % ± 1, -0.5")
    'cffl(expel\\\\_by=share) 90 \\\\% $\\\\pm$ 1, $-$0.5'
    """
    return "".join(map(_letter, re.sub(r"(?<![\w)-])-(?=\.?\d)", "−", text)))


def _letter(sign: str) -> str:
    """What is neither known nor of Latin 1 loses its accents, or is a question mark."""
    if sign in LATEX or " " <= sign <= "~":
        return LATEX.get(sign, sign)
    if unicodedata.category(sign)[0] in "CZ":
        return " "
    if "¡" <= sign <= "ÿ" and sign not in "ÐðÞþ":  # which the default encoding of fonts lacks
        return sign
    plain = unicodedata.normalize("NFD", sign).encode("ascii", "ignore").decode()
    return "".join(LATEX.get(one, one) for one in plain) or "?"
