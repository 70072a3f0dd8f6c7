"""A comparison as it lies on disk: its settings, each with the cells that are done."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fedakd.cellfolder import DATA, CellFolder, free_place, write_json
from fedakd.compare.jobs import Job, jobs_of
from fedakd.compare.schema import Comparison, comparison
from fedakd.compare.store import Store
from fedakd.drawn import asked
from fedakd.errors import PlanError
from fedakd.experiment import Cell, stored_cell
from fedakd.plan import REFERENCE, SINGULAR, Plan, resolve
from fedakd.runfolder import RunFolder
from fedakd.summary import Row, rows_of

MEASURES = {  # of `Fairness`, as the tables name them; all but CF are fractions
    "maximum": "max client accuracy",
    "average": "average client accuracy",
    "cf": "CF",
    "minimum": "min client accuracy",
    "mean_gain": "mean gain",
    "budget_gain": "mean gain over training alone for as many rounds",
    "converged_gain": "mean gain over training alone to convergence",
    "converged_cf": "CF against training alone to convergence",
}


@dataclass(frozen=True)
class Setting:
    """One dataset and partition, with what came of its methods and seeds."""

    plan: Plan
    cells: tuple[Cell, ...]  # those that are done, by seed, in the order of the plan's methods
    audits: dict[int, dict[str, Any]]  # by seed, as stored: `Audit.to_dict`
    versions: dict[str, str]  # the cells' were made with; several of one thing side by side
    leaky_audits: dict[int, dict[str, Any]] = field(default_factory=dict)  # of what leaking methods train on

    @property
    def label(self) -> str:
        return f"{self.plan.dataset}, {self.plan.partition}"

    @cached_property
    def rows(self) -> list[Row]:
        """One for each method and view, over the seeds whose reference is done."""
        known = {cell.seed for cell in self.cells if cell.method == REFERENCE}
        cells = [cell for cell in self.cells if cell.seed in known]
        return rows_of(cells, self.plan.preset, self.plan.reference) if cells else []

    def scores(self, measure: str) -> dict[str, dict[int, float]]:
        """Method -> seed -> the measure of the model it is judged by."""
        return {
            row.method: {
                seed: getattr(one, measure) for seed, one in zip(row.seeds, row.per_seed, strict=True)
            }
            for row in self.rows
            if row.judged
        }

    def marks(self, method: str) -> str:
        """What a reader must know of a method's numbers: see `Row.marks`."""
        return next((row.marks for row in self.rows if row.method == method and row.judged), "")

    @property
    def superseded(self) -> bool:
        """Whether some cells were computed by an earlier version, whose numbers do not mix with today's."""
        return any(cell.version != self.plan.version for cell in self.cells)

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
    if not (folder / "plan.json").exists():
        raise PlanError(f"{folder} holds no run and no comparison: expected a plan.json or a {RECORD} in it")
    run, plan = RunFolder.open(folder)
    stores = {(m, s): run.done(m, s) for s in plan.seeds for m in plan.methods}
    told = json.loads((folder / "plan.json").read_text())
    places = Places(
        lambda seed, leak: run.audit(seed, leak, ""),
        lambda seed, leak: run.judged(seed, leak, asked(plan, seed, leak)),
    )
    setting = setting_from(plan, stores, places, told.get("versions", {}))
    return Results(plan.title, (setting,), folder, shlex.join(["fedakd", "run", *options_of(plan)]))


def options_of(plan: Plan) -> list[str]:
    """What to type after `fedakd run` to have this plan again."""
    usual = resolve(plan.preset, dataset=plan.dataset)
    words: list[str] = []
    for name, value in plan.model_dump().items():
        option = f"--{SINGULAR.get(name, name).replace('_', '-')}"
        if name in ("preset", "dataset", "partition", *SINGULAR) or value != getattr(usual, name):
            many = [f"{k}={n}" for k, n in value.items()] if isinstance(value, dict) else value
            many = many if isinstance(many, tuple | list) else (many,)
            kept = many[1:] if name == "methods" and len(many) > 1 else many  # the reference is always there
            words += [word for one in kept for word in (option, str(one))]
    return words


def compared(folder: Path) -> Results:
    """The comparison that was begun in a folder; its cells may lie elsewhere."""
    return results_of(folder, recorded(folder))


def results_of(folder: Path, told: Recorded) -> Results:
    settings = tuple(
        setting_of(plan, told.store, told.versions, told.names) for plan in told.comparison.settings
    )
    return Results(told.comparison.title, settings, folder, told.command, told.table)


def setting_of(
    plan: Plan, store: Store, versions: dict[str, str], names: Mapping[str, str] = MappingProxyType({})
) -> Setting:
    """One setting of a comparison; cells are found by their recorded `names`, or by today's."""
    jobs = [Job(plan, method, seed) for seed in plan.seeds for method in plan.methods]
    stores = {(job.method, job.seed): store.done(names.get(job.label) or job.name) for job in jobs}

    def name(seed: int, leak: bool) -> str:
        return names.get(federation_label(plan, seed, leak)) or asked(plan, seed, leak)

    places = Places(
        lambda seed, leak: store.audit(seed, leak, name(seed, leak)),
        lambda seed, leak: store.judged(seed, leak, name(seed, leak)),
    )
    return setting_from(plan, stores, places, versions)


class Places(NamedTuple):
    """Where the audit of a seed's federation and its test rows lie; the flag asks for the leaky one."""

    audit: Callable[[int, bool], Path]
    judged: Callable[[int, bool], Path]


def names_of(comparison: Comparison) -> dict[str, str]:
    """The names of a comparison's cells and federations in their store, by label.

    Names are hashes that change with the version of the results; recorded ones find earlier results.
    """
    cells = {job.label: job.name for job in jobs_of(comparison)}
    federations = {
        federation_label(plan, seed, leak): asked(plan, seed, leak)
        for plan in comparison.settings
        for seed in plan.seeds
        for leak in (False, True)[: 1 + bool(plan.leaking)]
    }
    return cells | federations


def federation_label(plan: Plan, seed: int, leak: bool) -> str:
    return f"{plan.dataset} {plan.partition} seed {seed}{' leaky' * leak}"


def setting_from(
    plan: Plan,
    stores: Mapping[tuple[str, int], CellFolder | None],
    places: Places,
    versions: dict[str, str],
) -> Setting:
    done = {who: own for who, own in stores.items() if own}
    check_rows(plan, done)
    cells = tuple(
        stored_cell(own, method, seed, places.judged(seed, plan.leaks(method)))
        for (method, seed), own in done.items()
    )
    audits = {seed: places.audit(seed, False) for seed in plan.seeds}
    leaky = {seed: places.audit(seed, True) for seed in plan.seeds if plan.leaking}
    made = versions_of([replace(cell, versions=cell.versions or versions) for cell in cells])
    return Setting(plan, cells, audits_of(audits), made or versions, audits_of(leaky))


def check_rows(plan: Plan, done: Mapping[tuple[str, int], CellFolder]) -> None:
    """Methods of one seed are compared on the same rows, or not at all."""
    first: dict[tuple[int, bool], CellFolder] = {}
    for (method, seed), own in done.items():
        other = first.setdefault((seed, plan.leaks(method)), own)
        if own.fields.get(DATA) != other.fields.get(DATA):
            raise PlanError(
                f"{plan.dataset}, {plan.partition}, seed {seed}: {own.path} and {other.path} were computed "
                "on different rows and cannot be compared; move one of them away and compute it again"
            )


def versions_of(cells: Sequence[Cell]) -> dict[str, str]:
    """What cells were made with; where they differ, all of it."""
    names = dict.fromkeys(name for cell in cells for name in cell.versions)
    found = {name: sorted({cell.versions.get(name, "unknown") for cell in cells}) for name in names}
    return {name: " / ".join(own) for name, own in found.items()}


def audits_of(paths: Mapping[int, Path]) -> dict[int, dict[str, Any]]:
    return {seed: own for seed, path in paths.items() if (own := audit_in(path)) is not None}


def audit_in(path: Path) -> dict[str, Any] | None:
    """The audit in a file, if there is one."""
    if not path.exists():
        return None
    again = "give the command that made the results again, and it is written anew"
    try:
        found = dict(json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise PlanError(f"{path} is damaged: {error}; {again}") from error
    if missing := [key for key in AUDITED if key not in found]:
        raise PlanError(f"{path} is no audit: it lacks {', '.join(missing)}; {again}")
    return found


class Recorded(NamedTuple):
    """What a folder says of the comparison in it."""

    comparison: Comparison
    store: Store
    command: str
    versions: dict[str, str]
    table: str = ""  # of the paper, if it is one
    names: Mapping[str, str] = MappingProxyType({})  # of cells and federations in the store, by label


def record(folder: Path, told: Recorded) -> None:
    """Says in a folder what is compared there, and where its cells lie."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise PlanError(
            f"{folder} is a file, or lies in one; results need a folder: choose another --out"
        ) from None
    where = os.path.relpath(told.store.path, folder)
    names = dict(told.names) or names_of(told.comparison)
    plain = {"comparison": told.comparison.model_dump(), "store": where, "names": names}
    write_json(folder / RECORD, told._asdict() | plain)


def set_aside(folder: Path) -> Path:
    """Moves what was told of another comparison away; cells stay where they are."""
    place = free_place(folder / "replaced", "tables")
    place.mkdir()
    for path in [path for pattern in WRITTEN for path in folder.glob(pattern)]:
        path.rename(place / path.name)
    return place


def recorded(folder: Path) -> Recorded:
    path = folder / RECORD
    try:
        told = json.loads(path.read_text())
        asked_for = comparison(told["comparison"], str(path))
        rest = {key: told[key] for key in ("command", "versions", "table")}
        return Recorded(asked_for, Store(folder / told["store"]), **rest, names=told.get("names", {}))
    except (FileNotFoundError, NotADirectoryError):
        raise PlanError(
            f"{folder} holds no comparison: expected a {RECORD} in it, as `fedakd compare` writes it"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{path} is damaged: {error}") from error


RECORD = "comparison.json"
WRITTEN = (RECORD, "summary.*", "scores.csv", "tables.csv", "costs.json", "report.*", "figure*.*")
AUDITED = ("pools", "clients", "shared", "leaky", "warnings")  # what readers of an audit rely on
