"""What can be said over several settings, and what a reader must be warned of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedakd.compare.results import MEASURES, Setting
from fedakd.plan import REFERENCE
from fedakd.report import audit
from fedakd.report.standing import no_competitors, places
from fedakd.report.table import BEST, TIE
from fedakd.report.tables import OVERVIEW, gain
from fedakd.summary import Row, named

LEAKY = "LEAKY"  # how remarks and warnings of that kind begin


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
    return [
        Verdict(row.label, row.verdict.removeprefix(f"{row.label}: "), _tone(row))
        for row in setting.rows
        if row.judged
    ]


def _tone(row: Row) -> str:
    _, low, high = gain(row)
    return "pays" if low > 0 else "costs" if high < 0 else ""


def across(settings: Sequence[Setting]) -> list[Verdict]:
    """One sentence for each method: where joining pays."""
    by_method: dict[str, list[Row]] = {}
    for row in [row for setting in settings for row in setting.rows if row.judged]:
        by_method.setdefault(row.method, []).append(row)
    return [_across(method, rows) for method, rows in by_method.items() if method != REFERENCE]


def _across(method: str, rows: Sequence[Row]) -> Verdict:
    found = [gain(row) for row in rows]
    pays, costs = sum(low > 0 for _, low, _ in found), sum(high < 0 for _, _, high in found)
    told = [f"joining pays in {pays} of {len(rows)} setting{'s' if len(rows) != 1 else ''}"]
    told += [f"costs in {costs}"] if costs else []
    told += [f"unclear in {len(rows) - pays - costs}"] if pays + costs < len(rows) else []
    return Verdict(named(method), f"{', '.join(told)}; {_range(found)}{_losers(rows)}.")


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
    return f"; {worse} of {clients} client results are worse off" if clients else ""


def winners(settings: Sequence[Setting]) -> list[str]:
    """For each measure who is best where, as far as the seeds can tell; nothing where they cannot."""
    return [line for measure in OVERVIEW if (line := _winners(settings, measure))]


def _winners(settings: Sequence[Setting], measure: str) -> str:
    told = [line for setting in settings if (line := _winner(setting, measure))]
    return f"{MEASURES[measure][0].upper()}{MEASURES[measure][1:]}: {'; '.join(told)}." if told else ""


def _winner(setting: Setting, measure: str) -> str:
    found = places(setting, measure)
    best = [named(method) for method, place in found.items() if place == BEST]
    tied = [named(method) for method, place in found.items() if place == TIE]
    if best:
        return f"{best[0]} is best in {setting.label}"
    competing = len(found.keys() - set(no_competitors(setting, measure)))
    if tied and len(tied) == competing:
        return f"all {competing} are tied in {setting.label}"
    return f"{', '.join(tied[:-1])} and {tied[-1]} are tied in {setting.label}" if tied else ""


def alarms(setting: Setting) -> list[str]:
    """What makes numbers worthless as evidence: rows trained on and judged by."""
    found = [remark for remark in setting.plan.remarks if remark.startswith(LEAKY)]
    if setting.plan.preset == "released":
        found.append(
            "preset released: the published code's protocol, kept to show where its numbers come from"
        )
    shared = {seed: [audit.verdict(one)] for seed, one in setting.audits.items() if audit.leaks(one)}
    warnings = [text for text in _by_text(_warnings(setting)) if LEAKY in text]
    return [*found, *_overlap(setting), *warnings, *_by_text(shared)]


def _overlap(setting: Setting) -> list[str]:
    """How many rows leaking methods are both trained on and judged by."""
    counts = [audit.overlap(one) for one in setting.leaky_audits.values()]
    if not counts:
        return []
    rows = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{counts[0]}"
    return [f"of the rows {trained_on(setting)} trained on, {rows} base rows are test rows too"]


def trained_on(setting: Setting) -> str:
    """The leaking methods by name."""
    return ", ".join(map(named, setting.plan.leaking)) or "leaking methods"


def notes(setting: Setting) -> list[str]:
    """What a reader must know to weigh the numbers."""
    told = [remark for remark in setting.plan.remarks if not remark.startswith(LEAKY)]
    warnings = [text for text in _by_text(_warnings(setting)) if LEAKY not in text]
    troubles = [f"{row.label}: {text}" for row in setting.rows if row.judged for text in row.troubles]
    return [*_missing(setting), *told, *warnings, *troubles]


def _warnings(setting: Setting) -> dict[int, list[str]]:
    return {seed: list(one["warnings"]) for seed, one in setting.audits.items()}


def _by_text(told: dict[int, list[str]]) -> list[str]:
    """Each text once, with the seeds it is about."""
    seeds: dict[str, list[int]] = {}
    for seed, texts in told.items():
        for text in texts:
            seeds.setdefault(text, []).append(seed)
    return [f"seed{'s' * (len(own) > 1)} {', '.join(map(str, own))}: {text}" for text, own in seeds.items()]


def _missing(setting: Setting) -> list[str]:
    missing = setting.missing
    if not missing:
        return []
    wanted = len(setting.plan.seeds) * len(setting.plan.methods)
    named_ = ", ".join(f"{method} seed {seed}" for method, seed in missing[:6])
    more = f" and {len(missing) - 6} more" if len(missing) > 6 else ""
    return [f"Not complete: {wanted - len(missing)} of {wanted} cells are done; missing: {named_}{more}"]
