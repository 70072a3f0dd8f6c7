"""Who is best, as far as the seeds can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedakd.compare.results import Setting
from fedakd.plan import REFERENCE
from fedakd.report.table import BEST, TIE

if TYPE_CHECKING:
    from fedakd.ranking import Place

AGAINST_REFERENCE = (
    "cf",
    "mean_gain",
    "budget_gain",
    "converged_gain",
    "converged_cf",
)  # Standalone compared with itself is no competitor
SHOWN = {"best": BEST, "tied": TIE}
NO_PLACE = ("excluded", "unknown")


def places(setting: Setting, measure: str) -> dict[str, str]:
    """Method -> BEST, TIE or nothing; nothing at all from one seed, which cannot tell anybody apart."""
    return {method: SHOWN.get(place, "") for method, place in competing(setting, measure).items()}


def competing(setting: Setting, measure: str) -> dict[str, Place]:
    """Method -> its place among those that compete; nobody competes with one seed alone."""
    import numpy as np

    from fedakd.ranking import standings

    hidden = no_competitors(setting, measure)
    found = standings(setting.scores(measure), rng=np.random.default_rng(0), exclude=hidden)
    tested = max((one.count for one in found.values()), default=0) > 1
    return {method: one.place for method, one in found.items() if tested and one.place not in NO_PLACE}


def no_competitors(setting: Setting, measure: str) -> list[str]:
    """Who is shown beside the others only: the reference where it is the measure, and who trains on tests."""
    reference = [REFERENCE] if measure in AGAINST_REFERENCE else []
    return [*reference, *setting.plan.not_competing]


def detectable(setting: Setting) -> str:
    """What differences between methods these seeds could have shown."""
    from fedakd.statistics import detectable_line

    hidden = setting.plan.not_competing
    found = detectable_line(setting.scores("average"), "points", per_unit=100, exclude=hidden)
    return f"Average accuracy: {found}"
