"""The page: everything that was found, in one HTML file that asks nobody for anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from fedakd.compare.results import Results, Setting
from fedakd.errors import PlanError
from fedakd.figures import COLOURS
from fedakd.outcome import superseded
from fedakd.report import audit, bars, curves, tables
from fedakd.report.cautions import alarms, all_alarms, notes, trained_on
from fedakd.report.charts import HUES, Chart, Look, looks
from fedakd.report.clients import Panel, panels
from fedakd.report.facts import WORDS, facts_of, judged_models, otherwise, setting_facts
from fedakd.report.picture import correlations, pictures
from fedakd.report.published import beside, overall, printed
from fedakd.report.sentences import Verdict, across, headline, verdicts, winners
from fedakd.report.standing import detectable
from fedakd.report.table import Entry, Table


@dataclass(frozen=True)
class Audited:
    seed: int
    verdict: str
    pools: Table
    clients: Table


@dataclass(frozen=True)
class Section:
    """One setting."""

    name: str
    label: str
    facts: str
    alarms: list[str]
    notes: list[str]
    verdicts: list[Verdict]
    detectable: str
    results: list[Table]
    gains: list[Chart]
    curves: list[Chart]
    clients: Table
    panels: list[Panel]
    costs: list[Chart]
    cost: Table
    audits: list[Audited]
    leaky_audits: list[Audited]
    trained_on: str  # who leaks
    plan: str


def html(results: Results) -> str:
    """The same results give the same bytes: nothing but what is stored goes in."""
    from jinja2 import Environment, StrictUndefined

    shown = settings_of(results)
    told = overall(shown, tables.OVERVIEW)
    drawn = looks(cell.method for setting in shown for cell in setting.cells)
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.from_string(_file("page.html")).render(
        title=results.title,
        command=results.command,
        folder=results.folder.name,
        alarms=[*superseded(shown, results.command), *all_alarms(shown)],
        facts=facts_of(results.settings),
        words=WORDS,
        pictures=pictures(results),
        correlations=correlations(results),
        headline=headline(shown),
        judged=judged_models(shown),
        across=across(shown) if len(shown) > 1 else [],
        winners=winners(shown) if len(shown) > 1 else [],
        overview=[tables.overview(shown, one) for one in tables.OVERVIEW] if len(shown) > 1 else [],
        overall=told,
        beside=beside(printed(results), told),
        otherwise=otherwise(shown),
        marks=tables.marks(shown),
        sections=[section(setting, drawn, f"s{at}") for at, setting in enumerate(shown, 1)],
        waiting=[setting.label for setting in results.settings if not setting.rows],
        versions=versions(results),
        style=Markup(colours() + _file("page.css")),
        script=Markup(_file("page.js")),
    )


def settings_of(results: Results) -> list[Setting]:
    """Those with something to show."""
    shown = [setting for setting in results.settings if setting.rows]
    if not shown:
        raise PlanError(
            f"{results.folder} holds no results yet: no seed's standalone run is done; wait, or resume it"
        )
    return shown


def section(setting: Setting, drawn: Mapping[str, Look], name: str) -> Section:
    plan = setting.plan
    return Section(
        name=name,
        label=setting.label,
        facts=setting_facts(setting),
        alarms=alarms(setting),
        notes=notes(setting),
        verdicts=verdicts(setting),
        detectable=detectable(setting),
        results=[tables.accuracy(setting, name), tables.fairness(setting, name)],
        gains=bars.gains(setting, drawn, name),
        curves=curves.charts(setting, drawn, name),
        clients=tables.clients(setting, name),
        panels=panels(setting, name),
        costs=bars.cost(setting, drawn, name),
        cost=tables.cost(setting, name),
        audits=audited(setting.audits, name),
        leaky_audits=audited(setting.leaky_audits, f"{name}-leaky"),
        trained_on=trained_on(setting),
        plan=json.dumps(plan.model_dump(mode="json"), indent=2),
    )


def audited(audits: Mapping[int, dict[str, Any]], name: str) -> list[Audited]:
    names = {seed: f"{name}-seed{seed}" for seed in audits}
    return [
        Audited(seed, audit.verdict(one), audit.pools(one, names[seed]), audit.clients(one, names[seed]))
        for seed, one in audits.items()
    ]


def versions(results: Results) -> Table:
    """What the numbers were made with; settings made alike share a line."""
    names = dict.fromkeys(name for setting in results.settings for name in setting.versions)
    alike: dict[tuple[str, ...], list[str]] = {}
    for setting in results.settings:
        own = tuple(setting.versions.get(name, "") for name in names)
        alike.setdefault(own, []).append(setting.label)
    rows = tuple(
        (Entry("; ".join(labels) if len(alike) > 1 else "all"), *map(Entry, own))
        for own, labels in alike.items()
    )
    return Table("versions", "Made with", ("settings", *names), rows)


def colours() -> str:
    """The palette of the figures as variables of the style sheet; its black is the colour of the text."""
    return ":root{" + "".join(f"--hue{at}:{colour};" for at, colour in enumerate(COLOURS[:HUES])) + "}\n"


def _file(name: str) -> str:
    return (files("fedakd.report") / name).read_text(encoding="utf-8")
