"""What a comparison leaves behind when it ends: tables for people, files for machines.

summary.md      the tables, with what they can and cannot show
summary.json    everything by setting, method, view and seed
scores.csv      one line for each setting, method, view and seed
tables.csv      one line for each entry of a table: ours with interval, place and p, and what was published
costs.json      passes, megabytes and seconds a round; apart, because seconds never repeat
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

from fedakd import wire
from fedakd.cellfolder import write_json
from fedakd.compare.results import Results, Setting
from fedakd.fairness import Fairness
from fedakd.paper.forms import csv_rows, markdown
from fedakd.paper.tables import SubTable, subtables
from fedakd.summary import Row
from fedakd.tables import costs

FIELDS = (
    "average", "maximum", "minimum", "mean_gain", "worse_off", "cf", "cf_low", "cf_high",
    "spearman", "jain", "gini", "budget_gain", "budget_worse_off", "converged_gain", "converged_worse_off",
    "converged_cf", "sgd_gain",
)  # fmt: skip


def write_outcome(results: Results) -> list[SubTable]:
    """Writes the files, and returns the tables for those who show them too."""
    parts = subtables(results, results.table)
    write_json(results.folder / "summary.json", summary(results))
    write_json(results.folder / "costs.json", {one.label: costs(one.cells) for one in results.settings})
    wire.write(results.folder / "scores.csv", scores_csv(results).encode())
    entries = [row for part in parts for row in csv_rows(part)]
    wire.write(results.folder / "tables.csv", as_csv(entries, list(entries[0]) if entries else []).encode())
    wire.write(results.folder / "summary.md", told(results, parts).encode())
    return parts


def summary(results: Results) -> dict[str, Any]:
    return {"title": results.title, "settings": [of_setting(one) for one in results.settings]}


def of_setting(setting: Setting) -> dict[str, Any]:
    return {
        "plan": setting.plan.model_dump(),
        "remarks": setting.plan.remarks,
        "warnings": warnings_of(setting),
        "missing": setting.missing,
        "rows": [row.to_dict() for row in setting.rows],
    }


def warnings_of(setting: Setting) -> list[str]:
    """What the audits warn of, each once."""
    return list(dict.fromkeys(text for one in setting.audits.values() for text in one.get("warnings", ())))


def told(results: Results, parts: list[SubTable]) -> str:
    """The tables as Markdown, with what a reader must know before the numbers."""
    lines = [f"# {results.title}", *(f"**{one}**" for one in remarks(results)), *map(markdown, parts)]
    return "\n\n".join(lines) + "\n"


def remarks(results: Results) -> list[str]:
    """What a reader must know, each once: leaks, recipes of their own, cells that are not there."""
    found = [text for one in results.settings for text in (*one.plan.remarks, *warnings_of(one))]
    missing = sum(len(one.missing) for one in results.settings)
    wanted = sum(len(one.plan.methods) * len(one.plan.seeds) for one in results.settings)
    lacking = [f"{missing} of {wanted} cells have not been computed yet"] if missing else []
    return [*superseded(results.settings, results.command), *lacking, *dict.fromkeys(found)]


def superseded(settings: Sequence[Setting], command: str) -> list[str]:
    """A warning where some cells are of an earlier version of the results."""
    if not any(setting.superseded for setting in settings):
        return []
    return [
        "SUPERSEDED: these numbers were computed by an earlier version of fedakd, whose faults are mended "
        f"since; compute them again: {command}"
    ]


def scores_csv(results: Results) -> str:
    lines = [line for one in results.settings for row in one.rows for line in lines_of(one, row)]
    named = ["dataset", "partition", "preset", "scale", "method", "leaky", "view", "judged"]
    return as_csv(lines, [*named, "seed", "rounds", "gradients", *FIELDS])


def as_csv(lines: list[dict[str, Any]], names: list[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def lines_of(setting: Setting, row: Row) -> list[dict[str, Any]]:
    """One for each seed."""
    plan = setting.plan
    about = {"dataset": plan.dataset, "partition": plan.partition, "preset": plan.preset, "scale": plan.scale}
    about |= {"method": row.method, "leaky": plan.spoils(row.method), "view": row.view, "judged": row.judged}
    runs = zip(row.seeds, row.rounds, row.gradients, row.per_seed, strict=True)
    return [
        {**about, "seed": seed, "rounds": rounds, "gradients": gradients, **known(one)}
        for seed, rounds, gradients, one in runs
    ]


def known(one: Fairness) -> dict[str, Any]:
    """The numbers that are defined."""
    values = {name: getattr(one, name) for name in FIELDS}
    return {
        name: "" if value is None or (isinstance(value, float) and math.isnan(value)) else value
        for name, value in values.items()
    }
