"""Who is best, as far as the seeds can tell."""

from __future__ import annotations

from fedakd.compare.results import Setting
from fedakd.plan import REFERENCE
from fedakd.report.table import BEST, TIE

AGAINST_REFERENCE = ("cf", "mean_gain")  # Standalone compared with itself is no competitor
SHOWN = {"best": BEST, "tied": TIE}


def places(setting: Setting, measure: str) -> dict[str, str]:
    """Method -> BEST, TIE or nothing; nothing at all from one seed, which cannot tell anybody apart."""
    import numpy as np

    from fedakd.ranking import standings

    found = standings(
        setting.scores(measure), rng=np.random.default_rng(0), exclude=no_competitors(setting, measure)
    )
    tested = max((one.count for one in found.values()), default=0) > 1
    return {method: SHOWN.get(one.place, "") if tested else "" for method, one in found.items()}


def no_competitors(setting: Setting, measure: str) -> list[str]:
    """Who is shown beside the others only: the reference where it is the measure, and who trains on tests."""
    reference = [REFERENCE] if measure in AGAINST_REFERENCE else []
    return [*reference, *setting.plan.leaking]


def detectable(setting: Setting) -> str:
    """What differences between methods these seeds could have shown."""
    from fedakd.statistics import detectable_line

    return f"Average accuracy: {detectable_line(setting.scores('average'), 'points', per_unit=100)}"
