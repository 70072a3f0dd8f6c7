"""The measurements as tables: headers and rows of text, and plain values for files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fedakd.partition import ClientShift
from fedakd.shift.measure import Chance, SiteShift

HEADERS = ["site", "rows", "KL", "of mean", "shrunk", "M(M+3)/4A", "chance", "KL(y)", "chance(y)", "told"]
LEGEND = (
    "KL: of Gaussians fitted to the site's rows and the pool's, exact, in nats; of mean: the part due to the "
    "means; shrunk: with a Ledoit-Wolf covariance; M(M+3)/4A and chance: what as many rows drawn at random "
    "give, by formula and by drawing (95 %); KL(y): of labels, with its own chance; told: of its rows, those "
    "a classifier that gives all sites the same weight assigns to it"
)


def table(sites: Sequence[SiteShift]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            site.name,
            str(site.rows),
            f"{site.kl:.2f}",
            f"{site.of_mean:.2f}",
            f"{site.shrunk:.2f}",
            f"{site.sampling:.3f}",
            interval(site.chance),
            "-" if math.isnan(site.label_kl) else f"{site.label_kl:.3f}",
            "-" if math.isnan(site.label_kl) else interval(site.label_chance),
            f"{site.told:.0%}",
        ]
        for site in sites
    ]
    return list(HEADERS), rows


def short(sites: Sequence[SiteShift]) -> tuple[list[str], list[list[str]]]:
    """The same for narrow terminals."""
    headers, rows = table(sites)
    kept = [headers.index(name) for name in ("site", "rows", "KL", "shrunk", "chance", "KL(y)", "told")]
    return [headers[at] for at in kept], [[row[at] for at in kept] for row in rows]


def interval(chance: Chance) -> str:
    return f"{chance.low:.3f}-{chance.high:.3f}" if chance.high < 1000 else "inf"


def generated(shifts: Sequence[ClientShift]) -> list[dict[str, Any]]:
    """What was asked of the generator and what came, one row a client."""
    return [{"client": client, **asdict(shift)} for client, shift in enumerate(shifts)]


def plain(sites: Sequence[SiteShift]) -> list[dict[str, Any]]:
    """One flat row a site."""
    rows = []
    for site in sites:
        values = asdict(site)
        for name in ("chance", "shrunk_chance", "label_chance"):
            values |= {f"{name}_{part}": value for part, value in values.pop(name).items()}
        values["judged_by"] = "kl" if site.usable else "shrunk" if site.enough else "nothing"
        rows.append({**values, "shifted": site.shifted, "labels_shifted": site.labels_shifted})
    return rows
