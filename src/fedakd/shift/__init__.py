"""Measuring shift: how far sites are from their pool, how much of that is chance, what the paper claims."""

from fedakd.shift.measure import Chance, SiteShift
from fedakd.shift.report import Report, feature_map, report
from fedakd.shift.sites import Sites, of_federation, of_groups
from fedakd.shift.telling import Told

__all__ = [
    "Chance",
    "Report",
    "SiteShift",
    "Sites",
    "Told",
    "feature_map",
    "of_federation",
    "of_groups",
    "report",
]
