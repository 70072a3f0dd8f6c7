"""A table as every form of the report shows it: entries with the number each was made from."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    text: str
    value: float | None = None  # as stored, unrounded: what a click on the header sorts by
    place: str = ""  # BEST, TIE or nothing


@dataclass(frozen=True)
class Table:
    name: str  # unique in a report
    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]  # the first entry of a row names it
    note: str = ""


BEST, TIE = "best", "tie"


def number(value: float | None, digits: int = 1, *, factor: float = 1.0, sign: bool = False) -> Entry:
    """A number rounded for the eye; what is not known stays empty.

    >>> number(0.1234, factor=100, sign=True)
    Entry(text='+12.3', value=0.1234, place='')
    """
    if value is None or math.isnan(value):
        return Entry("undefined")
    shown = round(factor * value, digits) + 0.0  # no negative nothing
    return Entry(f"{shown:{'+' if sign else ''}.{digits}f}", value)


def count(value: int) -> Entry:
    return Entry(f"{value:,}".replace(",", " "), value)  # a narrow space, as no language reads it wrongly
