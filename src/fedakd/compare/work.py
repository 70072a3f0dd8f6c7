"""One process at work on the jobs of a comparison: it takes what nobody else has, until all are done."""

from __future__ import annotations

import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fedakd.compare.jobs import Job
from fedakd.compare.results import audit_in
from fedakd.compare.store import Store
from fedakd.data import load
from fedakd.data.images import ImageDataset
from fedakd.drawn import asked
from fedakd.engine.processes import Workers
from fedakd.errors import FedakdError, PlanError
from fedakd.experiment import Cell, Cells, Ground, Observer
from fedakd.rounds import Round

PAUSE = 0.5  # seconds between looks at what others are computing


class Foreman(Protocol):
    """Whoever keeps track of jobs; `watching` gets what happens inside one."""

    def took(self, job: Job) -> None: ...
    def advanced(self, job: Job, done: int, rounds: int) -> None: ...
    def finished(self, job: Job, seconds: float) -> None: ...
    def found(self, job: Job) -> None:
        """It is done, by somebody else or by an earlier run."""

    def failed(self, job: Job, why: str) -> None: ...
    def waiting(self, jobs: int) -> None:
        """All that is left is in other processes' hands."""

    @property
    def watching(self) -> Observer: ...


class Advancing(ABC):
    """What a foreman makes of the observer's view of one job: how many rounds of it are done."""

    current: Job | None = None
    rounds = 0

    @abstractmethod
    def advanced(self, job: Job, done: int, rounds: int) -> None: ...

    def began(self, method: str, seed: int, rounds: int, done: int, clients: int) -> None:
        self.rounds = rounds
        self._advance(done)

    def progressed(self, stage: str, client: int) -> None:
        """Rounds are fine enough for many cells."""
        return

    def judged(self, record: Round) -> None:
        self._advance(record.number)

    def _advance(self, done: int) -> None:
        if self.current is not None:
            self.advanced(self.current, done, self.rounds)

    def ended(self, cell: Cell) -> None:
        """The foreman is told of jobs."""
        return


@dataclass
class Hand:
    """Works through jobs in their order; what it last loaded it keeps for the next job."""

    store: Store
    foreman: Foreman
    workers: int | Workers = 0
    threads: int | None = None
    data_dir: Path | None = None
    pause: Callable[[float], None] = time.sleep
    _ground: tuple[str, Cells, Ground] | None = None
    _dataset: tuple[str, ImageDataset] | None = None
    _broken: set[str] = field(default_factory=set)

    def work(self, jobs: list[Job]) -> None:
        left = list(jobs)
        while left:
            before = len(left)
            left = [job for job in left if not self._settled(job)]
            if len(left) == before:
                self.foreman.waiting(len(left))
                self.pause(PAUSE)

    def restore_audits(self, jobs: list[Job]) -> None:
        """An audit that was lost is made again from the rows, if they are still those of the cells."""
        for path, job in {self._audit_of(job): job for job in jobs}.items():
            cell = self.store.done(job.name)
            if cell and not _intact(path):
                _, ground = self._on(job)
                if ground.stores[job.method].identity != cell.identity:
                    path.unlink()
                    told = "its rows are not on this machine, and drawn here they are others"
                    self.foreman.watching.noticed(f"{job.label}: the audit is lost: {told}")

    def _audit_of(self, job: Job) -> Path:
        leak = job.plan.leaks(job.method)
        return self.store.audit(job.seed, leak, asked(job.plan, job.seed, leak))

    def _settled(self, job: Job) -> bool:
        """Whether there is nothing left to do about it."""
        if self.store.done(job.name):
            self.foreman.found(job)
            return True
        if job.after and job.after.name in self._broken:
            return self._failed(job, f"it gets the time of {job.after.method}, which failed")
        if job.after and not self.store.done(job.after.name):
            return False
        with self.store.claim(job.name) as mine:
            if not mine:
                return False
            if not self.store.done(job.name):  # or somebody finished it while we were asking
                return self._attempt(job)
        self.foreman.found(job)
        return True

    def _attempt(self, job: Job) -> bool:
        began = time.monotonic()
        self.foreman.took(job)
        try:
            cells, ground = self._on(job)
            cells.cell(job.method, ground, self.workers)
        except FedakdError as error:
            return self._failed(job, str(error))
        except Exception as error:  # a full disk, a method's own mistake: the other cells need not suffer
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}, line {place.lineno}"
            return self._failed(job, f"{type(error).__name__}: {error} ({where})")
        self.foreman.finished(job, time.monotonic() - began)
        return True

    def _failed(self, job: Job, why: str) -> bool:
        self._broken.add(job.name)
        self.foreman.failed(job, why)
        return True

    def _on(self, job: Job) -> tuple[Cells, Ground]:
        """The job's federation, drawn once for all processes and kept until another is needed."""
        key = f"{job.federation}-{job.plan.model_dump_json()}"
        if self._ground is None or self._ground[0] != key:
            self._ground = None  # before the next one: both would not always fit into memory
            cells = Cells.of(job.plan, self.store, self._data(job), self.foreman.watching, self.threads)
            (self.store.path / "federations").mkdir(parents=True, exist_ok=True)
            with self.store.claim(f"federation-{job.federation}", wait=True):
                self._ground = (key, cells, cells.ground(job.seed))
        return self._ground[1:]

    def _data(self, job: Job) -> ImageDataset:
        if self._dataset is None or self._dataset[0] != job.plan.dataset:
            progress = self.foreman.watching.fetching
            self._dataset = (job.plan.dataset, load(job.plan.dataset, self.data_dir, progress=progress))
        return self._dataset[1]


def _intact(audit: Path) -> bool:
    try:
        return audit_in(audit) is not None
    except PlanError:
        return False
