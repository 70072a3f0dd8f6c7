"""What a table can and cannot show: who is ahead over all its columns, and what it could have found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from fedakd.summary import named

if TYPE_CHECKING:
    from fedakd.ranking import Ranks
    from fedakd.statistics import Paired

SUBJECT = "fedakd"
Column = Mapping[str, Mapping[int, float]]  # method -> seed -> value


def notes_of(scores: Sequence[Column], measure: str) -> Iterator[str]:
    """The sentences below a table."""
    if any(len(column) == 1 for column in scores) and all(len(column) < 2 for column in scores):
        yield "Fewer than two methods compete, so there is nothing to compare."
        return
    yield detectable_of(scores, measure)
    yield ranks_line(scores)
    if line := against_line(scores, measure):
        yield line


def detectable_of(scores: Sequence[Column], measure: str) -> str:
    """What one column could have shown."""
    from fedakd.statistics import detectable_line

    # Named by their column, methods are paired within columns only.
    apart = {
        f"{method}, column {k}": {(k, seed): value for seed, value in own.items()}
        for k, column in enumerate(scores)
        for method, own in column.items()
    }
    unit, per_unit = ("points of CF", 1.0) if "cf" in measure else ("points", 100.0)
    others = max(map(len, scores), default=1) - 1
    found = detectable_line(apart, unit, per_unit=per_unit, comparisons=others)
    return f"In one column: {found[0].lower()}{found[1:]}" if len(scores) > 1 else found


def ranks_line(scores: Sequence[Column]) -> str:
    """Friedman's ranks over the columns by their means over seeds, or over the seeds of a single column."""
    from fedakd.ranking import friedman

    blocks, means = means_of(scores)
    found = friedman(means)
    return ranks_told(found, blocks) if found else f"Too few methods or {blocks} for Friedman's ranks."


def ranks_told(found: Ranks, blocks: str) -> str:
    order = ", ".join(f"{named(method)} {rank:.1f}" for method, rank in found.ranks.items())
    p = "p < 0.001" if found.p < 0.001 else f"p = {found.p:.3f}"
    return (
        f"Mean ranks over {found.blocks} {blocks} (1 is best): {order}. Friedman {p}; mean ranks that are "
        f"{found.critical_difference:.1f} or more apart differ significantly (Nemenyi, 0.05)."
    )


def means_of(scores: Sequence[Column]) -> tuple[str, dict[str, dict[int, float]]]:
    """What is paired, and the values: columns by their means over seeds, or the seeds of a single column.

    Seeds of one column are not independent settings: paired over both, they would count too often.
    """
    if len(scores) == 1:
        return "seeds", {method: dict(own) for method, own in scores[0].items()}
    methods = dict.fromkeys(method for column in scores for method in column)
    shared = [shared_seeds(column) for column in scores]
    return "columns", {
        method: {
            k: fmean(column[method][seed] for seed in seeds)
            for k, (column, seeds) in enumerate(zip(scores, shared, strict=True))
            if seeds and all(seed in column.get(method, {}) for seed in seeds)
        }
        for method in methods
    }


def shared_seeds(column: Column) -> list[int]:
    """The seeds for which every method of the column has a value: a mean over others would compare seeds."""
    known = [{seed for seed, value in own.items() if not math.isnan(value)} for own in column.values()]
    some = [seeds for seeds in known if seeds]  # a method without any value takes no column from the others
    return sorted(set.intersection(*some)) if some else []


def against_line(scores: Sequence[Column], measure: str) -> str | None:
    """Every method less FedAKD, or less the one with the largest mean where FedAKD is not compared."""
    from fedakd.statistics import compared

    over, means = means_of(scores)
    known = {method: own for method, own in means.items() if not math.isnan(_mean(own))}
    if len(known) < 2:
        return None
    subject = SUBJECT if SUBJECT in known else max(known, key=lambda method: _mean(known[method]))
    found = compared(known, subject)
    if all(math.isnan(one.adjusted) for one in found.values()):
        return None
    factor = 1 if "cf" in measure else 100
    said = ", ".join(_told(method, one, factor) for method, one in found.items())
    pairs = max(one.n for one in found.values())
    some = any(one.better or one.worse for one in found.values())
    which = "Those marked ! are" if some else "None of them is"
    return (
        f"Difference to {named(subject)}, mean over {pairs} {over} with its 95 % interval before correction: "
        f"{said}. {which} significant (paired, corrected by Holm, level 0.05)."
    )


def _told(method: str, one: Paired, factor: int) -> str:
    mark = "!" if one.better or one.worse else ""
    interval = "" if math.isnan(one.low) else f" ({factor * one.low:+.1f} to {factor * one.high:+.1f})"
    return f"{named(method)} {factor * one.difference:+.1f}{mark}{interval}"


def _mean(values: Mapping[int, float]) -> float:
    known = [value for value in values.values() if not math.isnan(value)]
    return fmean(known) if known else math.nan
