"""Values of a table that no model can use: where they stand, what they are, and what to do about them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import DataError

LARGEST = float(np.finfo(np.float32).max)  # models compute with 32-bit numbers
SHOWN = 3  # places that an error lists
MISSING = frozenset({"", "?", "-", ".", "na", "n/a", "nan", "-nan", "null", "none", "missing"})
ADVICE = {
    "missing": "fill in missing values, or leave out their rows or columns",
    "too large": f"write finite numbers of at most {LARGEST:.1e}",
    "text": "turn words into numbers, or name the column of labels with --label",
}


@dataclass(frozen=True)
class Wrong:
    """A value that is no finite number."""

    place: str  # line or row, and column
    text: str  # as it stands in the file
    value: float  # as read; nan if it is no number

    @property
    def kind(self) -> str:
        """Missing, too large or text.

        >>> Wrong("line 2", "?", math.nan).kind, Wrong("line 3", "1e308", 1e308).kind
        ('missing', 'too large')
        """
        if self.text.lower() in MISSING:
            return "missing"
        return "text" if math.isnan(self.value) else "too large"


def unusable(x: NDArray[np.float64]) -> NDArray[np.int64]:
    """Row and column of every value that is nan, infinite or too large.

    >>> unusable(np.array([[1.0, 2.0], [np.nan, 1e308]])).tolist()
    [[1, 0], [1, 1]]
    """
    return np.argwhere(~(np.abs(x) <= LARGEST))


def refuse(path: Path, wrong: Sequence[Wrong], kind: str = "finite numbers") -> None:
    """An error if there is any such value: the first places, how many there are, and what helps."""
    if not wrong:
        return
    places = "; ".join(f"{value.place}: got {value.text!r}" for value in wrong[:SHOWN])
    more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    advice = "; ".join(text for kind, text in ADVICE.items() if kind in {value.kind for value in wrong})
    count = "1 value is none" if len(wrong) == 1 else f"{len(wrong)} values are none"
    raise DataError(f"{path}: expected {kind}, {count}: {places}{more}. What to do: {advice}")
