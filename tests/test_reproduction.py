"""The numbers `docs/reproduction.md` quotes are those of the results that come with the project.

A comment before each of its tables says whose they are: `<!-- results/fashion-mnist/table1 average -->`.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import pytest

from fedakd.paper.views import titled

ROOT = Path(__file__).parent.parent
QUOTED = re.compile(r"<!-- (results/\S+) (\w+) -->\n\n((?:\|.*\n)+)")
CELL = re.compile(r"([+-]?\d+\.\d)(?: ± (\d+\.\d))?(?: \((-?\d+\.\d)\))?")


class Quote(NamedTuple):
    folder: str
    measure: str
    table: str


def quotes(text: str) -> list[Quote]:
    return [Quote(*found) for found in QUOTED.findall(text)]


def fields(line: str) -> list[str]:
    return [field.strip().strip("*") for field in line.strip().strip("|").split("|")]


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def stored(quote: Quote) -> dict[tuple[str, str], dict[str, str]]:
    """By the method's title and the column: a measure of the tables, or the clients' mean gain in points."""
    folder = ROOT / quote.folder
    if quote.measure == "gain":
        return gains(lines_of(folder / "scores.csv"))
    lines = [line for line in lines_of(folder / "tables.csv") if line["measure"] == quote.measure]
    return {(titled(line["method"]), line["column"]): line for line in lines}


def gains(lines: list[dict[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
    seen: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in lines:
        view = "" if line["judged"] == "True" else f"/{line['view']}"
        seen[titled(line["method"] + view), line["partition"]].append(100 * float(line["mean_gain"]))
    return {key: {"mean": str(mean(own))} for key, own in seen.items()}


def wrong(quote: Quote) -> list[str]:
    """What a quoted table says otherwise than the stored one."""
    known = stored(quote)
    (_, *headers), _, *rows = (fields(line) for line in quote.table.splitlines())
    columns = {column for _, column in known}
    spelled = [next(one for one in columns if one.startswith(header.lower())) for header in headers]
    return [
        f"{method} {column}: {said}"
        for method, *cells in rows
        for column, said in zip(spelled, cells, strict=True)
        if not agrees(said, known[method, column])
    ]


def agrees(said: str, line: dict[str, str]) -> bool:
    found = CELL.fullmatch(said)
    names = ("mean", "std", "published_mean")
    return found is not None and all(
        number is None or float(number) == float(f"{float(line[name]):.1f}")
        for number, name in zip(found.groups(), names, strict=True)
    )


QUOTES = quotes((ROOT / "docs" / "reproduction.md").read_text())


def test_every_table_is_quoted():
    stored = ROOT.glob("results/*/table*/comparison.json")
    folders = {path.parent.relative_to(ROOT).as_posix() for path in stored}
    assert {quote.folder for quote in QUOTES} == folders


def test_no_table_of_results_goes_unchecked():
    text = QUOTED.sub("", (ROOT / "docs" / "reproduction.md").read_text())
    assert not [line for line in text.splitlines() if line.startswith("|") and "±" in line]


@pytest.mark.parametrize("quote", QUOTES, ids=lambda quote: f"{quote.folder}-{quote.measure}")
def test_a_quoted_table_is_the_stored_one(quote):
    assert wrong(quote) == []


def test_a_wrong_number_would_be_seen():
    one = QUOTES[0]
    first = CELL.search(one.table)
    table = one.table.replace(first.group(1), f"{float(first.group(1)) + 0.1:.1f}", 1)
    assert len(wrong(one._replace(table=table))) == 1
