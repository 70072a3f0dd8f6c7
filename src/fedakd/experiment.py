"""From a plan to results on disk: cells one after another, each resumable at every round."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedakd.audit import Audit, audit, check
from fedakd.cellfolder import CellFolder, write_json
from fedakd.data import load
from fedakd.data.images import ImageDataset
from fedakd.drawn import asked, contents, federation_of, with_stored_rows
from fedakd.engine.base import Engine
from fedakd.engine.processes import Workers
from fedakd.errors import PlanError
from fedakd.federation import Federation
from fedakd.judged import keep_judged, read_judged
from fedakd.models import factory
from fedakd.partition.contract import Evaluation, Rows, Weights
from fedakd.plan import Plan
from fedakd.rounds import Budget, Outcomes, Round, Start, begin, opened, run
from fedakd.runfolder import RunFolder
from fedakd.simulation import cores, engine_for, server_of, spec_of
from fedakd.training import Task
from fedakd.trees import Tree


@dataclass(frozen=True)
class Cell:
    """One method and seed, and what came of it."""

    method: str
    seed: int
    rounds: list[Round]
    train_rows: int
    distinct_test_rows: tuple[int, ...]
    stopped: str | None = None
    notices: tuple[str, ...] = ()
    evaluation: Evaluation = "local"
    effective_test_rows: tuple[float, ...] = ()  # Kish's; none in results before version 4
    few_test_rows: tuple[int, ...] = ()  # clients with fewer effective ones than the rule asks, by force
    outcomes: Outcomes = field(default_factory=dict, repr=False)  # of the last judged round
    judged: tuple[tuple[Rows, Weights | None], ...] = field(default=(), repr=False)  # test rows and weights
    versions: dict[str, str] = field(default_factory=dict)  # what it was made with
    version: Any = None  # of the results: `Plan.version` when it was computed


class Folder(Protocol):
    """Where cells and the rows of their federations lie."""

    def rows(self, seed: int, leak: bool, asked: str) -> Path: ...
    def audit(self, seed: int, leak: bool, asked: str) -> Path: ...
    def judged(self, seed: int, leak: bool, asked: str) -> Path: ...
    def cell(self, method: str, seed: int, fields: dict[str, Any]) -> CellFolder: ...


class Observer(Protocol):
    """Whoever watches a run."""

    def fetching(self, file: str, done: int, total: int | None) -> None: ...
    def federated(self, found: Audit) -> None: ...
    def began(self, method: str, seed: int, rounds: int, done: int, clients: int) -> None: ...
    def progressed(self, stage: str, client: int) -> None: ...
    def judged(self, record: Round) -> None: ...
    def noticed(self, notice: str) -> None: ...
    def ended(self, cell: Cell) -> None: ...


def carry_out(
    plan: Plan,
    folder: RunFolder,
    observer: Observer,
    *,
    workers: int | None = None,
    data_dir: Path | None = None,
) -> list[Cell]:
    """Every cell of the plan that is not done yet; what is done is read from the folder."""
    with folder.locked():
        dataset = load(plan.dataset, data_dir, progress=observer.fetching)
        cells = Cells.of(plan, folder, dataset, observer)
        count = min(cores() if workers is None else workers, plan.clients)
        pool = Workers(count, folder.spool) if count else 0
        try:
            return [cell for seed in plan.seeds for cell in cells.seed(seed, pool)]
        finally:
            if isinstance(pool, Workers):
                pool.close()


@dataclass(frozen=True)
class Cells:
    """What the cells of one plan have in common."""

    plan: Plan
    folder: Folder
    dataset: ImageDataset
    task: Task
    observer: Observer
    threads: int | None = None  # of the server's; None: one for each core

    @staticmethod
    def of(
        plan: Plan, folder: Folder, dataset: ImageDataset, observer: Observer, threads: int | None = None
    ) -> Cells:
        task = Task(factory(plan.model, dataset.shape, dataset.classes))
        return Cells(plan, folder, dataset, task, observer, threads)

    def seed(self, seed: int, workers: int | Workers) -> list[Cell]:
        """The cells of one seed; they share its federation."""
        ground = self.ground(seed)
        self.refuse_early(ground)
        order = sorted(self.plan.methods, key=lambda name: self.plan.paced_by(name) is not None)
        cells = {name: self.cell(name, ground, workers) for name in order}
        return [cells[name] for name in self.plan.methods]

    def ground(self, seed: int) -> Ground:
        """What the cells of one seed stand on."""
        honest = self._federation(seed, leak=False)
        leaky = self._federation(seed, leak=True) if self.plan.leaking else honest
        federations = {name: leaky if self.plan.leaks(name) else honest for name in self.plan.methods}
        sums = {id(own): contents(own) for own in (honest, leaky)}
        fields = {n: {**self.plan.cell(n, seed), "data": sums[id(own)]} for n, own in federations.items()}
        stores = {name: self.folder.cell(name, seed, own) for name, own in fields.items()}
        return Ground(seed, federations, stores)

    def refuse_early(self, ground: Ground) -> None:
        """A method that cannot begin says so now, not after the methods before it have trained for hours."""
        left = {n: own for n, own in ground.federations.items() if ground.stores[n].finished() is None}
        servers = {id(own): server_of(own, self.task, self.plan.recipe) for own in left.values()}
        for name, federation in left.items():
            opened(self.plan.method(name), servers[id(federation)], ground.seed)

    def cell(self, name: str, ground: Ground, workers: int | Workers) -> Cell:
        store = ground.stores[name]
        if store.finished() is None:
            self._run(name, ground, workers)
        leak = self.plan.leaks(name)
        judged = self.folder.judged(ground.seed, leak, asked(self.plan, ground.seed, leak))
        cell = stored_cell(store, name, ground.seed, judged)
        self.observer.ended(cell)
        return cell

    def _run(self, name: str, ground: Ground, workers: int | Workers) -> None:
        plan, method, rounds = self.plan, self.plan.method(name), self.plan.rounds_of(name)
        seed, federation, store = ground.seed, ground.federations[name], ground.stores[name]
        spec = spec_of(method, federation, self.task, plan.recipe, seed)
        server = server_of(federation, self.task, plan.recipe, self.threads)
        engine = engine_for(spec, workers, self.observer.progressed)
        try:
            start, refused = self._resumed(store, engine)
            start = start or begin(method, engine, server, seed=seed)
            self.observer.began(name, seed, rounds, len(start.rounds), federation.clients)
            options = {
                "participation": plan.participation_of(name),
                "judge_every": plan.judge_every,
                "start": start,
            }
            options |= {
                "budget": self._budget(name, ground),
                "on_round": keeper(store, engine, self.observer),
            }
            result = run(method, engine, server, rounds=rounds, seed=seed, **options)  # type: ignore[arg-type]
            notices = [*refused, *engine.notices, *method.remarks(result.state)]
            told = {"stopped": result.stopped, "notices": notices}
            store.finish(**told, **judged_on(federation), versions=versions())
        finally:
            engine.close()

    def _resumed(self, store: CellFolder, engine: Engine) -> tuple[Start | None, list[str]]:
        """Where a cell that was stopped goes on, if anywhere, and what of it could not be used."""
        start, refused = store.latest(engine)
        if start is None and (moved := store.set_aside()):
            refused.append(moved)
        for notice in refused:
            self.observer.noticed(notice)
        store.describe()
        store.rewind(len(start.rounds) if start else 0)
        return start, refused

    def _budget(self, name: str, ground: Ground) -> Budget:
        pacing = self.plan.paced_by(name)
        if pacing is None:
            return self.plan.budget
        measure = "seconds" if self.plan.equal_time else "gradients"
        spent = sum(getattr(record, measure) for record in ground.stores[pacing].rounds())
        if not spent > 0:  # nan: some were lost
            raise PlanError(
                f"the {measure} of {pacing} are not in {ground.stores[pacing].path}; compute it again"
            )
        return replace(self.plan.budget, **{measure: min(spent, getattr(self.plan.budget, measure))})

    def _federation(self, seed: int, leak: bool) -> Federation:
        """The seed's federation, with the rows that were drawn when the run began, and its audit."""
        drawn, name = federation_of(self.plan, self.dataset, seed, leak), asked(self.plan, seed, leak)
        federation = with_stored_rows(drawn, self.folder.rows(seed, leak, name))
        found = audit(federation)
        check(found)
        write_json(self.folder.audit(seed, leak, name), found.to_dict())
        keep_judged(federation, self.folder.judged(seed, leak, name))
        self.observer.federated(found)
        return federation


@dataclass(frozen=True)
class Ground:
    """One seed's federations and folders, by method; they differ only where published code leaks."""

    seed: int
    federations: dict[str, Federation]
    stores: dict[str, CellFolder]


def judged_on(federation: Federation) -> dict[str, object]:
    """What a reader of scores must know of the rows."""
    distinct = [len(np.unique(federation.test_rows(k))) for k in range(federation.clients)]
    clients = audit(federation).clients
    effective = [client.effective_test_rows for client in clients]
    few = [k for k, client in enumerate(clients) if client.few_test_rows]
    rows = {"distinct_test_rows": distinct, "effective_test_rows": effective, "few_test_rows": few}
    return {"train_rows": sum(map(len, federation.train)), **rows, "evaluation": federation.evaluation}


def stored_cell(store: CellFolder, method: str, seed: int, judged: Path | None = None) -> Cell:
    """A cell that is done, from its folder, and from the file that says which rows it was judged on."""
    done, rounds = store.finished() or {}, store.rounds()
    if any(key not in done for key in DONE) or not rounds or not rounds[-1].scores:
        why = "is of another version of fedakd, or has no result"
        raise PlanError(f"{store.path} {why}; move it away and give the command again")
    return Cell(
        method,
        seed,
        rounds,
        train_rows=done["train_rows"],
        distinct_test_rows=tuple(done["distinct_test_rows"]),
        effective_test_rows=tuple(done.get("effective_test_rows", ())),
        few_test_rows=tuple(done.get("few_test_rows", ())),
        outcomes=store.outcomes(),
        judged=tuple(read_judged(judged)) if judged and judged.exists() else (),
        stopped=done["stopped"],
        notices=tuple(done["notices"]),
        evaluation=done["evaluation"],
        versions=done.get("versions", {}),
        version=store.fields.get("results"),
    )


DONE = ("evaluation", "stopped", "notices", "train_rows", "distinct_test_rows")  # of `judged_on` and the end


def keeper(store: CellFolder, engine: Engine, observer: Observer) -> Callable[[Round, Tree], None]:
    """Writes each round down before anybody is told of it: first its line, then what is needed to go on."""
    told = 0

    def keep(record: Round, state: Tree) -> None:
        nonlocal told
        store.append(record)
        store.checkpoint(record.number, state, engine)
        for notice in [*engine.notices[told:], *record.failures.values()]:
            observer.noticed(notice)
        told = len(engine.notices)
        observer.judged(record)

    return keep


def versions() -> dict[str, str]:
    import torch

    from fedakd import __version__

    found = {"fedakd": __version__, "torch": torch.__version__, "numpy": np.__version__}
    return {**found, "python": platform.python_version(), "machine": platform.machine()}
