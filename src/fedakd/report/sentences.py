"""What can be said in a sentence: of a method in one setting, of a method in all, of who is best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedakd.compare.results import MEASURES, Setting
from fedakd.plan import is_reference
from fedakd.report.standing import competing
from fedakd.report.tables import OVERVIEW, gain
from fedakd.summary import Row, named
from fedakd.verdict import class_of

NO_EVIDENCE = "it has seen its own test rows, so its numbers are no evidence"


@dataclass(frozen=True)
class Verdict:
    """A sentence about somebody, and what comes out of it."""

    label: str
    rest: str
    tone: str = ""  # "pays", "costs" or neither

    @property
    def sentence(self) -> str:
        return f"{self.label}: {self.rest}"


def verdicts(setting: Setting) -> list[Verdict]:
    """Of the model each method is judged by."""
    return [_verdict(row, setting.plan.spoils(row.method)) for row in setting.rows if row.judged]


def _verdict(row: Row, leaky: bool) -> Verdict:
    rest = row.verdict.removeprefix(f"{row.label}: ")
    return (
        Verdict(f"{row.label} (leaky)", f"{NO_EVIDENCE}; {rest}")
        if leaky
        else Verdict(row.label, rest, _tone(row))
    )


def _tone(row: Row) -> str:
    reached = reached_by(row)
    return "" if reached in ("unclear", "not converged") else reached


def reached_by(row: Row) -> str:
    """Whether joining pays, costs, is unclear, or cannot be judged before the runs have converged."""
    return "not converged" if row.unconverged else class_of(*gain(row)[1:])


@dataclass(frozen=True)
class Balance:
    """In how many settings joining pays with a method, and in how many it costs."""

    method: str
    rows: tuple[Row, ...]  # one a setting

    @property
    def gains(self) -> list[tuple[float, float, float]]:
        return [gain(row) for row in self.rows]

    @property
    def pays(self) -> int:
        return self.count("pays")

    @property
    def costs(self) -> int:
        return self.count("costs")

    def count(self, reached: str) -> int:
        return sum(reached_by(row) == reached for row in self.rows)

    @property
    def merit(self) -> tuple[float, float]:
        known = [one for one, _, _ in self.gains if not math.isnan(one)]
        return self.pays - self.costs, fmean(known) if known else -math.inf


def balances(settings: Sequence[Setting]) -> list[Balance]:
    """Of the methods that give evidence, those with which joining pays most often first."""
    rows = [row for one in settings for row in one.rows if row.judged and not one.plan.spoils(row.method)]
    methods = dict.fromkeys(row.method for row in rows if not is_reference(row.method))
    found = [Balance(method, tuple(row for row in rows if row.method == method)) for method in methods]
    return sorted(found, key=lambda one: one.merit, reverse=True)


def headline(settings: Sequence[Setting]) -> str:
    """The first thing to read: with whom joining pays most often."""
    found = balances(settings)
    most = max((one.pays for one in found), default=0)
    if not most:
        early = sum(one.count("not converged") for one in found)
        why = "; many runs have not converged" if early else ""
        return f"With no method joining clearly pays in any of the {len(settings)} settings{why}."
    who = _and([named(one.method) for one in found if one.pays == most])
    everywhere = f"every one of the {len(settings)} settings"
    where = (
        everywhere
        if most == len(settings)
        else f"{most} of {len(settings)} settings, more than with any other"
    )
    return f"Joining pays with {who} in {where}."


def across(settings: Sequence[Setting]) -> list[Verdict]:
    """One sentence for each method: where joining pays."""
    leaking = dict.fromkeys(name for setting in settings for name in setting.plan.spoiled)
    return [
        *map(_across, balances(settings)),
        *(Verdict(f"{named(name)} (leaky)", f"{NO_EVIDENCE}.") for name in leaking),
    ]


def _across(one: Balance) -> Verdict:
    settings, unclear, open_ = len(one.rows), one.count("unclear"), one.count("not converged")
    told = [f"joining pays in {one.pays} of {settings} setting{'s' if settings != 1 else ''}"]
    told += [f"costs in {one.costs}"] if one.costs else []
    told += [f"unclear in {unclear}"] if unclear else []
    told += [f"no verdict in {open_}, where a run has not converged"] if open_ else []
    tone = "pays" if one.pays == settings else "costs" if one.costs and not one.pays else ""
    return Verdict(named(one.method), f"{', '.join(told)}; {_range(one.gains)}{_losers(one.rows)}.", tone)


def _range(found: Sequence[tuple[float, float, float]]) -> str:
    known = [100 * one for one, _, _ in found if not math.isnan(one)]
    if not known:
        return "no gain is known"
    if len(known) == 1:
        return f"mean gain {known[0]:+.1f} points"
    return f"mean gain {min(known):+.1f} to {max(known):+.1f} points"


def _losers(rows: Sequence[Row]) -> str:
    compared = [one for row in rows for one in row.per_seed if one.worse_off is not None]
    worse, clients = sum(one.worse_off or 0 for one in compared), sum(one.clients for one in compared)
    verb = "is" if worse == 1 else "are"
    return f"; {worse} of {clients} client results {verb} worse off" if clients else ""


def winners(settings: Sequence[Setting]) -> list[str]:
    """For each measure who is best where, as far as the seeds can tell; nothing where they cannot."""
    return [line for measure in OVERVIEW if (line := _winners(settings, measure))]


def _winners(settings: Sequence[Setting], measure: str) -> str:
    tested = [(one.label, own) for one in settings if (own := competing(one, measure))]
    if not tested:
        return ""
    best = [line for one in tested if (line := _best(*one))]
    nobody = len(tested) - len(best)
    told = [*best, *([f"nobody is shown to be best in {_of_all(nobody, len(tested))}"] if nobody else [])]
    behind = [line for one in tested if (line := _behind(*one))]
    worse = f" Shown to be worse than the largest: {'; '.join(behind)}." if behind else ""
    return f"{MEASURES[measure][0].upper()}{MEASURES[measure][1:]}: {'; '.join(told)}.{worse}"


def _best(label: str, found: Mapping[str, str]) -> str:
    best = [named(method) for method, place in found.items() if place == "best"]
    return f"{best[0]} is best of the {len(found)} that compete in {label}" if best else ""


def _behind(label: str, found: Mapping[str, str]) -> str:
    """Where somebody is best all others are worse, and that is said already."""
    behind = [named(method) for method, place in found.items() if place == "behind"]
    return f"{_and(behind)} in {label}" if behind and "best" not in found.values() else ""


def _of_all(count: int, settings: int) -> str:
    if count == settings:
        return "this setting" if settings == 1 else f"any of {settings} settings"
    return f"the other {count}" if count > 1 else "the other one"


def _and(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
