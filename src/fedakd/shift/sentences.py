"""One sentence about each site, one about all, and one over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from fedakd.shift.measure import SiteShift
from fedakd.shift.telling import Told


def sentence(site: SiteShift) -> str:
    """What the numbers say of one site."""
    if not site.enough:
        return f"{site.name}: too few rows ({site.distinct}) to tell whether it is shifted."
    parts = [_inputs(site), _labels(site), _recognised(site)]
    return f"{site.name}: {'; '.join(part for part in parts if part)}."


def _inputs(site: SiteShift) -> str:
    value, chance = (site.kl, site.chance) if site.usable else (site.shrunk, site.shrunk_chance)
    few = "" if site.usable else f" (with {site.distinct} rows only a shrunk estimate can be had)"
    if not site.shifted:
        return f"no shift of its inputs beyond what {site.distinct} rows drawn at random would show{few}"
    if math.isinf(value):
        return "its inputs are shifted: they do not vary in a direction in which the pool does"
    times = f"{value / chance.mean:.0f} times" if value < 1000 * chance.mean else "over a thousand times"
    return f"its inputs are shifted{_where(site)}: KL {value:.2f}, {times} what chance would give{few}"


def _where(site: SiteShift) -> str:
    """Whether it is the mean or the spread that differs, where that is clear."""
    if not site.usable:
        return ""
    share = site.of_mean / site.kl
    return ", mostly of the mean" if share > 2 / 3 else ", mostly of the spread" if share < 1 / 3 else ""


def _labels(site: SiteShift) -> str:
    if math.isnan(site.label_kl):
        return ""
    if site.labels_shifted:
        return f"its labels are too (KL {site.label_kl:.2f})" if site.shifted else "its labels are shifted"
    return "its labels are not" if site.shifted else ""


def _recognised(site: SiteShift) -> str:
    return f"a classifier recognises {site.told:.0%} of its rows, guessing would {site.guessed:.0%}"


def overall(sites: Sequence[SiteShift], told: Told) -> str:
    """What the numbers say of the federation."""
    known = [site for site in sites if site.enough]
    inputs = f"{sum(site.shifted for site in known)} of {len(known)} sites have inputs shifted beyond chance"
    labels = f", {sum(site.labels_shifted for site in known)} labels"
    alone = f" (chance alone would show {len(known) / 40:.1g} of {len(known)})"
    apart = (
        f"{told.accuracy:.1%} of rows are assigned to their site, {told.majority:.1%} by naming the largest"
    )
    few = f"; {len(sites) - len(known)} have too few rows to tell" if len(known) < len(sites) else ""
    return f"{inputs}{labels if any(not math.isnan(s.label_kl) for s in known) else ''}{alone}{few}; {apart}."


def over_seeds(found: Mapping[int, Sequence[SiteShift]]) -> str:
    """How often sites were shifted beyond chance, seed by seed, and how far beyond."""
    known = [[site for site in sites if site.enough] for sites in found.values()]
    if not any(known):
        return f"Over {len(found)} seeds no site has rows enough to tell."
    shifted = ", ".join(f"{sum(site.shifted for site in own)} of {len(own)}" for own in known)
    times = [_times_chance(site) for own in known for site in own]
    far = f"{min(times):.1f} to {max(times):.1f} times that of random rows, median {median(times):.1f}"
    return (
        f"Over {len(found)} seeds: inputs are shifted beyond chance at {shifted} sites (chance alone: one in "
        f"40); KL is {far}."
    )


def _times_chance(site: SiteShift) -> float:
    value, chance = (site.kl, site.chance) if site.usable else (site.shrunk, site.shrunk_chance)
    return value / chance.mean
