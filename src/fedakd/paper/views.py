"""FedAKD's other model: it returns a global and a personal one, and both are in every table."""

from __future__ import annotations

from collections.abc import Sequence

from fedakd.compare.results import Setting
from fedakd.paper.overall import SUBJECT
from fedakd.summary import named

BETWEEN = "/"  # a line of a table: a method, or a method and the view that it is not judged by


def other_views(settings: Sequence[Setting]) -> list[str]:
    """The lines of models that FedAKD and its variants are not judged by."""
    found = (
        f"{row.method}{BETWEEN}{row.view}"
        for setting in settings
        for row in setting.rows
        if row.method.startswith(SUBJECT) and not row.judged
    )
    return list(dict.fromkeys(found))


def of_view(setting: Setting, line: str, measure: str) -> dict[int, float]:
    """Seed -> the measure of the model that a line stands for."""
    method, _, view = line.partition(BETWEEN)
    rows = [row for row in setting.rows if (row.method, row.view) == (method, view) and not row.judged]
    return {
        seed: getattr(one, measure) for row in rows for seed, one in zip(row.seeds, row.per_seed, strict=True)
    }


def titled(line: str) -> str:
    """
    >>> titled("fedakd"), titled("fedakd/global")
    ('FedAKD', 'FedAKD (global)')
    """
    method, _, view = line.partition(BETWEEN)
    return f"{named(method)} ({view})" if view else named(method)
