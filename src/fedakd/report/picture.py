"""The figures of the paper that a comparison was made for, as they lie beside their numbers."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from fedakd.compare.results import Results
from fedakd.paper.contributions import held, told
from fedakd.summary import named


@dataclass(frozen=True)
class Picture:
    source: str  # part of the page: it asks for no file
    alternative: str


def pictures(results: Results) -> list[Picture]:
    """Figure 3 has two parts, a and b."""
    found = results.folder.glob(f"{results.table}*.svg") if results.table.startswith("figure") else ()
    return [_picture(path, results.title) for path in sorted(found)]


def _picture(path: Path, title: str) -> Picture:
    data = base64.b64encode(path.read_bytes()).decode()
    return Picture(f"data:image/svg+xml;base64,{data}", f"{title}; its numbers are in {path.stem}.csv")


def correlations(results: Results) -> list[str]:
    """What Figure 1 shows in words: of contribution and accuracy alone, for each setting and method."""
    if results.table != "figure1":
        return []
    groups = groupby(held(results), key=lambda one: (one.setting.label, one.method))
    return [
        f"{label}, {named(method)}: {told(list(own)).replace(chr(10), '; ')}"
        for (label, method), own in groups
    ]
