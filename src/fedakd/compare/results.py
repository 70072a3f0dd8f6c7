"""A comparison as it lies on disk: its settings, each with the cells that are done."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fedakd.cellfolder import CellFolder, write_json
from fedakd.compare.jobs import Job
from fedakd.compare.schema import Comparison, comparison
from fedakd.compare.store import Store
from fedakd.drawn import asked
from fedakd.errors import PlanError
from fedakd.experiment import Cell, stored_cell
from fedakd.plan import REFERENCE, Plan
from fedakd.runfolder import RunFolder
from fedakd.summary import Row, rows_of

MEASURES = {  # of `Fairness`, as the tables name them; all but CF are fractions
    "maximum": "max client accuracy",
    "average": "average client accuracy",
    "cf": "CF",
    "minimum": "min client accuracy",
    "mean_gain": "mean gain",
}


@dataclass(frozen=True)
class Setting:
    """One dataset and partition, with what came of its methods and seeds."""

    plan: Plan
    cells: tuple[Cell, ...]  # those that are done, by seed, in the order of the plan's methods
    audits: dict[int, dict[str, Any]]  # by seed, as stored: `Audit.to_dict`
    versions: dict[str, str]

    @property
    def label(self) -> str:
        return f"{self.plan.dataset}, {self.plan.partition}"

    @cached_property
    def rows(self) -> list[Row]:
        """One for each method and view, over the seeds whose reference is done."""
        known = {cell.seed for cell in self.cells if cell.method == REFERENCE}
        cells = [cell for cell in self.cells if cell.seed in known]
        return rows_of(cells, self.plan.preset) if cells else []

    def scores(self, measure: str) -> dict[str, dict[int, float]]:
        """Method -> seed -> the measure of the model it is judged by."""
        return {
            row.method: {
                seed: getattr(one, measure) for seed, one in zip(row.seeds, row.per_seed, strict=True)
            }
            for row in self.rows
            if row.judged
        }

    @property
    def missing(self) -> list[tuple[str, int]]:
        done = {(cell.method, cell.seed) for cell in self.cells}
        wanted = [(method, seed) for seed in self.plan.seeds for method in self.plan.methods]
        return [one for one in wanted if one not in done]


@dataclass(frozen=True)
class Results:
    """A comparison, or one run, as far as it has come."""

    title: str
    settings: tuple[Setting, ...]
    folder: Path
    command: str  # that makes these results
    table: str = ""  # of the paper, if they are of one


def read(folder: Path) -> Results:
    """What lies in a folder of `fedakd compare`, `fedakd paper` or `fedakd run`."""
    if (folder / RECORD).exists():
        return compared(folder)
    run, plan = RunFolder.open(folder)
    stores = {(m, s): run.done(m, s) for s in plan.seeds for m in plan.methods}
    audits = {seed: run.audit(seed, False, "") for seed in plan.seeds}
    told = json.loads((folder / "plan.json").read_text())
    setting = Setting(plan, cells_of(stores), audits_of(audits), told.get("versions", {}))
    return Results(plan.title, (setting,), folder, f"fedakd run --resume {folder}")


def compared(folder: Path) -> Results:
    """The comparison that was begun in a folder; its cells may lie elsewhere."""
    told = recorded(folder)
    plans = told.comparison.settings
    settings = tuple(setting_of(plan, told.store, told.versions) for plan in plans)
    return Results(told.comparison.title, settings, folder, told.command, told.table)


def setting_of(plan: Plan, store: Store, versions: dict[str, str]) -> Setting:
    jobs = [Job(plan, method, seed) for seed in plan.seeds for method in plan.methods]
    stores = {(job.method, job.seed): store.done(job.name) for job in jobs}
    audits = {seed: store.audit(seed, False, asked(plan, seed, leak=False)) for seed in plan.seeds}
    return Setting(plan, cells_of(stores), audits_of(audits), versions)


def cells_of(stores: Mapping[tuple[str, int], CellFolder | None]) -> tuple[Cell, ...]:
    return tuple(stored_cell(own, method, seed) for (method, seed), own in stores.items() if own)


def audits_of(paths: Mapping[int, Path]) -> dict[int, dict[str, Any]]:
    return {seed: json.loads(path.read_text()) for seed, path in paths.items() if path.exists()}


class Recorded(NamedTuple):
    """What a folder says of the comparison in it."""

    comparison: Comparison
    store: Store
    command: str
    versions: dict[str, str]
    table: str = ""  # of the paper, if it is one


def record(folder: Path, told: Recorded) -> None:
    """Says in a folder what is compared there, and where its cells lie."""
    folder.mkdir(parents=True, exist_ok=True)
    where = os.path.relpath(told.store.path, folder)
    write_json(
        folder / RECORD, {**told._asdict(), "comparison": told.comparison.model_dump(), "store": where}
    )


def recorded(folder: Path) -> Recorded:
    path = folder / RECORD
    try:
        told = json.loads(path.read_text())
        asked_for = comparison(told["comparison"], str(path))
        rest = {key: told[key] for key in ("command", "versions", "table")}
        return Recorded(asked_for, Store(folder / told["store"]), **rest)
    except (FileNotFoundError, NotADirectoryError):
        raise PlanError(
            f"{folder} holds no comparison: expected a {RECORD} in it, as `fedakd compare` writes it"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{path} is damaged: {error}") from error


RECORD = "comparison.json"
