"""The numbers the paper prints, as data: claims to compare with, not numbers to match.

`published.json` has them as printed: table, measure, dataset, partition, method, then mean and standard
deviation. Tables 2 to 4 are about the paper's EHR data, divided by state: dataset `ehr`, partition `group`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from fedakd import partition as partitions
from fedakd.errors import PlanError, unknown
from fedakd.fairness import Spread

BOLD = "fedakd"  # the method the paper prints in bold in every column
RUNS = 3  # what its means and deviations are over
TITLES = {
    "table1": "Table 1: covariate shift",
    "table2": "Table 2: EHR data",
    "table3": "Table 3: the same time for all methods",
    "table4": "Table 4: ablations",
    "table5": "Table 5: label shift",
}


class Overtaken(NamedTuple):
    """A column in which the number in bold is not the largest."""

    measure: str
    dataset: str
    partition: str
    bold: Spread
    largest: Spread
    method: str  # whose number is the largest


@dataclass(frozen=True)
class Published:
    """One table; accuracies are fractions, CF is -100 to 100."""

    table: str
    numbers: dict[str, dict[str, dict[str, dict[str, Any]]]]  # as in the file

    @property
    def measures(self) -> tuple[str, ...]:
        return tuple(measure for measure in self.numbers if measure != "rounds")

    def columns(self, measure: str) -> list[tuple[str, str]]:
        """Dataset and partition of each column, from the left."""
        return [(dataset, name) for dataset, own in self.numbers[measure].items() for name in own]

    def methods(self, measure: str, dataset: str, partition: str) -> list[str]:
        """Those with a number in this column, from the top."""
        return list(self._column(measure, dataset, partition))

    def value(self, measure: str, dataset: str, partition: str, method: str) -> Spread | None:
        """Mean and standard deviation; None if the paper has no such number."""
        printed = self._column(measure, dataset, partition).get(_without_preset(method))
        if printed is None:
            return None
        mean, std = printed if measure == "cf" else (round(part / 100, 6) for part in printed)
        return Spread(mean, std, RUNS)

    def rounds(self, dataset: str, partition: str, method: str) -> int | None:
        """How many rounds the method got, in Table 3."""
        count = self._column("rounds", dataset, partition).get(_without_preset(method))
        return None if count is None else int(count)

    def overtaken(self) -> list[Overtaken]:
        """Where the method in bold does not have the largest number."""
        found = []
        for measure in self.measures:
            for column in self.columns(measure):
                names = self.methods(measure, *column)
                values = {name: self.value(measure, *column, name) for name in names}
                known = {name: one for name, one in values.items() if one}
                first = max(known, key=lambda name: known[name].mean)
                if known[first].mean > known[BOLD].mean:
                    found.append(Overtaken(measure, *column, known[BOLD], known[first], first))
        return found

    def _column(self, measure: str, dataset: str, partition: str) -> dict[str, Any]:
        own = self.numbers.get(measure, {}).get(dataset, {})
        return own.get(partition) or own.get(partitions.text(partitions.parse(partition)), {})


@cache
def published(table: str) -> Published:
    """A table of the paper, `table1` to `table5`."""
    stored = json.loads((files("fedakd.paper") / "published.json").read_text())
    if table not in stored:
        raise PlanError(unknown("table", table, stored))
    return Published(table, stored[table])


def _without_preset(method: str) -> str:
    """A preset is another reading of the same method; another field is a method the paper does not have.

    >>> _without_preset("cffl(preset=paper)"), _without_preset("cffl(upload=0.2)")
    ('cffl', 'cffl(upload=0.2)')
    """
    return re.sub(r"\(preset=\w+\)$", "", method)
