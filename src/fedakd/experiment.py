"""From a plan to results on disk: cells one after another, each resumable at every round."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from torch import tensor

from fedakd import wire
from fedakd.audit import Audit, audit, check
from fedakd.data import load
from fedakd.data.images import ImageDataset
from fedakd.engine.base import Engine
from fedakd.engine.processes import Workers
from fedakd.errors import PlanError
from fedakd.federation import Federation, federate
from fedakd.models import factory
from fedakd.partition.contract import Evaluation
from fedakd.plan import Plan, fingerprint
from fedakd.released import federate_released
from fedakd.rounds import Round, begin, opened, run
from fedakd.runfolder import CellFolder, RunFolder, write_json
from fedakd.simulation import cores, engine_for, server_of, spec_of
from fedakd.training import Task
from fedakd.trees import Tree

ROWS = {"dataset", "partition", "clients", "fraction", "preset"}  # what of a plan determines the rows drawn
SEAL = hashlib.sha256().digest_size


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
        cells = Cells(
            plan, folder, dataset, Task(factory(plan.model, dataset.shape, dataset.classes)), observer
        )
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
    folder: RunFolder
    dataset: ImageDataset
    task: Task
    observer: Observer

    def seed(self, seed: int, workers: int | Workers) -> list[Cell]:
        """The cells of one seed; they share its federation."""
        honest = self._federation(seed, leak=False)
        leaking = [name for name in self.plan.methods if self.plan.leaks(name)]
        leaky = self._federation(seed, leak=True) if leaking else honest
        federations = {name: leaky if name in leaking else honest for name in self.plan.methods}
        stores = {name: self._store(name, seed, own) for name, own in federations.items()}
        self._refuse_early(seed, {n: own for n, own in federations.items() if stores[n].finished() is None})
        return [self.cell(name, seed, own, stores[name], workers) for name, own in federations.items()]

    def _store(self, name: str, seed: int, federation: Federation) -> CellFolder:
        fields = {**self.plan.cell(name, seed), "data": contents(federation)}
        store = self.folder.cell(name, seed, fingerprint(fields))
        write_json(store.path / "cell.json", fields)
        return store

    def _refuse_early(self, seed: int, federations: dict[str, Federation]) -> None:
        """A method that cannot begin says so now, not after the methods before it have trained for hours."""
        servers = {id(own): server_of(own, self.task, self.plan.recipe) for own in federations.values()}
        for name, federation in federations.items():
            opened(self.plan.method(name), servers[id(federation)], seed)

    def cell(
        self, name: str, seed: int, federation: Federation, store: CellFolder, workers: int | Workers
    ) -> Cell:
        distinct = tuple(len(np.unique(federation.test_rows(k))) for k in range(federation.clients))
        done = store.finished()
        if done is None:
            self._run(name, seed, federation, store, workers)
            done = store.finished() or {}
        sizes = (sum(map(len, federation.train)), distinct)
        told = (done.get("stopped"), tuple(done.get("notices", ())))
        cell = Cell(name, seed, store.rounds(), *sizes, *told, federation.evaluation)
        self.observer.ended(cell)
        return cell

    def _run(
        self, name: str, seed: int, federation: Federation, store: CellFolder, workers: int | Workers
    ) -> None:
        plan, method, rounds = self.plan, self.plan.method(name), self.plan.rounds_of(name)
        spec = spec_of(method, federation, self.task, plan.recipe, seed)
        server = server_of(federation, self.task, plan.recipe)
        engine = engine_for(spec, workers, self.observer.progressed)
        try:
            start, refused = store.latest(engine)
            for notice in refused:
                self.observer.noticed(notice)
            if start is None and (moved := store.set_aside()):
                refused.append(moved)
                self.observer.noticed(moved)
            store.rewind(len(start.rounds) if start else 0)
            start = start or begin(method, engine, server, seed=seed)
            self.observer.began(name, seed, rounds, len(start.rounds), federation.clients)
            options = {"participation": plan.participation, "budget": plan.budget, "start": start}
            on_round = keeper(store, engine, self.observer)
            result = run(method, engine, server, rounds=rounds, seed=seed, on_round=on_round, **options)  # type: ignore[arg-type]
            store.finish(result.stopped, refused + engine.notices)
        finally:
            engine.close()

    def _federation(self, seed: int, leak: bool) -> Federation:
        """The seed's federation, with the rows that were drawn when the run began, and its audit."""
        name = f"seed{seed}{'-leaky' * leak}"
        drawn = federation_of(self.plan, self.dataset, seed, leak)
        asked = fingerprint({**self.plan.model_dump(include=ROWS), "seed": seed, "leak": leak})
        federation = with_stored_rows(drawn, self.folder.path / f"federation-{name}-{asked}.safetensors")
        found = audit(federation)
        check(found)
        write_json(self.folder.path / f"audit-{name}.json", found.to_dict())
        self.observer.federated(found)
        return federation


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


def federation_of(plan: Plan, dataset: ImageDataset, seed: int, leak: bool) -> Federation:
    if plan.preset == "released":
        return released(plan, dataset, seed, leak)
    federation = federate(dataset, plan.partition, plan.clients, fraction=plan.fraction, seed=seed)
    return federation if plan.evaluation == "auto" else replace(federation, evaluation=plan.evaluation)


def released(plan: Plan, dataset: ImageDataset, seed: int, leak: bool) -> Federation:
    """The published code knows three partitions, no strength of shift, and no common test set."""
    if plan.evaluation == "global":
        raise PlanError("preset released judges every client on its own test rows; leave out --evaluation")
    name = plan.partition.split("(")[0]
    kinds = {"pow": ("power", False), "bcs": ("equal", True), "ics": ("power", True)}
    if name not in kinds:
        raise PlanError(f"preset released has only {', '.join(kinds)}; no code was published for {name}")
    sizes, shifted = kinds[name]
    options = {"seed": seed, "leak": leak, "fraction": plan.fraction, "shifted": shifted}
    return federate_released(dataset, sizes, plan.clients, **options)  # type: ignore[arg-type]


def with_stored_rows(federation: Federation, path: Path) -> Federation:
    """The rows stored with the run, or these, stored now: another processor may round and draw otherwise."""
    if not path.exists():
        rows = {"validation": federation.validation, "global_test": federation.global_test}
        parts = {"train": federation.train, "test": federation.test}
        tree = {part: {str(k): tensor(own) for k, own in enumerate(all_)} for part, all_ in parts.items()}
        data = wire.dumps(tree | {name: tensor(own) for name, own in rows.items()})
        wire.write(path, data + hashlib.sha256(data).digest())
    stored_bytes = path.read_bytes()
    data, seal = stored_bytes[:-SEAL], stored_bytes[-SEAL:]
    if hashlib.sha256(data).digest() != seal:
        raise PlanError(f"{path} is damaged; without it the rows are drawn anew: move it away to do that")
    stored = wire.loads(data)
    train, test = (
        tuple(stored[part][str(k)].numpy() for k in range(federation.clients)) for part in ("train", "test")
    )
    common = {name: stored[name].numpy() for name in ("validation", "global_test")}
    return replace(federation, train=train, test=test, **common)


def contents(federation: Federation) -> str:
    """A checksum of the very rows every client trains on and is judged on."""
    total = hashlib.sha256()
    for rows in (
        *federation.train,
        *map(federation.test_rows, range(federation.clients)),
        federation.validation,
    ):
        total.update(rows.tobytes())
    total.update(np.ascontiguousarray(federation.dataset.x).data)
    total.update(federation.dataset.y.tobytes())
    return total.hexdigest()[:16]


def versions() -> dict[str, str]:
    import torch

    from fedakd import __version__

    found = {"fedakd": __version__, "torch": torch.__version__, "numpy": np.__version__}
    return {**found, "python": platform.python_version(), "machine": platform.machine()}
