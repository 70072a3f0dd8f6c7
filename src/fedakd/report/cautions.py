"""What a reader must be warned of, and what must be known to weigh the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from fedakd.compare.results import Setting
from fedakd.report import audit
from fedakd.summary import named

Key = TypeVar("Key")
LEAKY = "LEAKY"  # how remarks and warnings of that kind begin
RELEASED = "preset released: the published code's protocol, kept to show where its numbers come from"


def alarms(setting: Setting) -> list[str]:
    """What makes numbers worthless as evidence: rows trained on and judged by."""
    return [*_causes(setting), *_counts(setting)]


def all_alarms(settings: Sequence[Setting]) -> list[str]:
    """The same over all settings, each cause once; the counts of single seeds are told with their setting."""
    if len(settings) == 1:
        return alarms(settings[0])
    told = {at: _causes(setting) or _counts(setting) for at, setting in enumerate(settings)}
    return [f"{text} ({_where(own, settings)})" for text, own in _by_text(told).items()]


def _where(at: Sequence[int], settings: Sequence[Setting]) -> str:
    labels = "; ".join(settings[k].label for k in at)
    return "in all settings" if len(settings) == len(at) else f"in {labels}"


def _causes(setting: Setting) -> list[str]:
    found = [remark for remark in setting.plan.remarks if remark.startswith(LEAKY)]
    found += [RELEASED] if setting.plan.preset == "released" else []
    return [*found, *_overlap(setting), *(text for text in _by_text(_warnings(setting)) if LEAKY in text)]


def _counts(setting: Setting) -> list[str]:
    """How many rows pools share, seed by seed."""
    return _of_seeds({s: [audit.verdict(one)] for s, one in setting.audits.items() if audit.leaks(one)})


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
    warnings = [text for text in _of_seeds(_warnings(setting)) if LEAKY not in text]
    troubles = [f"{row.label}: {text}" for row in setting.rows if row.judged for text in row.troubles]
    return [*_missing(setting), *told, *warnings, *troubles]


def _warnings(setting: Setting) -> dict[int, list[str]]:
    return {seed: list(one["warnings"]) for seed, one in setting.audits.items()}


def _of_seeds(told: Mapping[int, Iterable[str]]) -> list[str]:
    """Each text once, with the seeds it is about."""
    return [
        f"seed{'s' * (len(own) > 1)} {', '.join(map(str, own))}: {text}"
        for text, own in _by_text(told).items()
    ]


def _by_text(told: Mapping[Key, Iterable[str]]) -> dict[str, list[Key]]:
    found: dict[str, list[Key]] = {}
    for key, texts in told.items():
        for text in texts:
            found.setdefault(text, []).append(key)
    return found


def _missing(setting: Setting) -> list[str]:
    missing = setting.missing
    if not missing:
        return []
    wanted = len(setting.plan.seeds) * len(setting.plan.methods)
    named_ = ", ".join(f"{method} seed {seed}" for method, seed in missing[:6])
    more = f" and {len(missing) - 6} more" if len(missing) > 6 else ""
    return [f"Not complete: {wanted - len(missing)} of {wanted} cells are done; missing: {named_}{more}"]
