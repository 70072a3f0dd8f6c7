"""All jobs of a comparison, several cells at once or several clients of one cell at once."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from signal import SIGINT
from typing import Any, Literal, cast

from fedakd.audit import Audit
from fedakd.compare.jobs import Job
from fedakd.compare.store import Store
from fedakd.compare.work import Advancing, Foreman, Hand
from fedakd.engine.processes import Workers, unheard
from fedakd.engine.worker import keep_freed_memory
from fedakd.errors import FedakdError, PlanError
from fedakd.experiment import Observer
from fedakd.simulation import cores

Parallel = Literal["auto", "cells", "clients"]


class CrewDied(FedakdError):
    """Processes that computed cells ended by themselves."""


@dataclass(frozen=True)
class Crew:
    """Who does the jobs of one comparison on this machine."""

    store: Store
    foreman: Foreman
    processes: int | None = None  # None: one for each core
    parallel: Parallel = "auto"
    data_dir: Path | None = None

    def work(self, jobs: list[Job]) -> None:
        """Returns when all jobs are done or have failed, whoever did them."""
        count = cores() if self.processes is None else self.processes
        left = [job for job in jobs if not self.store.done(job.name)]
        for job in jobs:
            if job not in left:
                self.foreman.found(job)
        if left and self.by_cells(left, count):
            self.side_by_side(left, min(count, len(left)))
        elif left:
            self.one_by_one(left, count)

    def by_cells(self, jobs: list[Job], count: int) -> bool:
        """Cells side by side never wait for each other, clients do, for the largest of them each round.

        With fewer cells than cores that is the lesser evil. Where seconds decide, all cells are timed on the
        same terms, on one core each, however many are left.
        """
        timed = any(job.plan.equal_time or job.plan.max_seconds for job in jobs)
        if timed and self.parallel == "clients":
            raise PlanError("where seconds end a run, cells are timed on one core each; leave out --parallel")
        if timed or self.parallel == "cells":
            return count > 0
        return self.parallel == "auto" and 1 < count <= len(jobs)

    def one_by_one(self, jobs: list[Job], count: int) -> None:
        with self.store.spool() as spool:
            pool: int | Workers = Workers(count, spool) if count else 0
            try:
                threads = 1 if any(job.plan.equal_time for job in jobs) else None  # all are timed on one core
                Hand(self.store, self.foreman, pool, threads, self.data_dir).work(jobs)
            finally:
                if isinstance(pool, Workers):
                    pool.close()

    def side_by_side(self, jobs: list[Job], count: int) -> None:
        members = [Member(jobs, self.store, self.data_dir) for _ in range(count)]
        try:
            listen(members, jobs, self.foreman)
        finally:
            for member in members:
                member.end()
        if any(not self.store.done(job.name) for job in jobs) and all(not one.content for one in members):
            raise CrewDied("every process that computed cells died; what they had done is kept")


class Member:
    """A process with one thread that goes through all jobs and takes those that are free."""

    def __init__(self, jobs: list[Job], store: Store, data_dir: Path | None) -> None:
        context = get_context("spawn")  # forking a process that has run torch's threads can deadlock
        self.pipe, theirs = context.Pipe(duplex=False)
        arguments = (theirs, jobs, store.path, data_dir)
        self.process = context.Process(target=serve, args=arguments, name="fedakd-cells", daemon=True)
        with unheard(SIGINT):  # Ctrl-C is for the parent
            self.process.start()
        theirs.close()
        self.content = False  # whether it has come to the end of the jobs

    def end(self) -> None:
        self.pipe.close()
        if not self.content:
            self.process.kill()  # in the middle of a round: the last one is on disk
        self.process.join()


def listen(members: list[Member], jobs: list[Job], foreman: Foreman) -> None:
    """Tells the foreman what members say until no member is left."""
    heard = Heard({job.name: job for job in jobs}, foreman)
    active = {member.pipe: member for member in members}
    while active:
        for pipe in cast(list[Connection], wait(list(active))):
            try:
                kind, *told = pipe.recv()
            except (EOFError, OSError):
                if not active.pop(pipe).content:
                    foreman.watching.noticed("a process that computed cells died; others take over")
                continue
            if kind == "end":
                active[pipe].content = True
            else:
                heard.event(kind, told)
    heard.close()


@dataclass
class Heard:
    """What members said: several may tell of one job, the foreman hears each end once."""

    jobs: dict[str, Job]
    foreman: Foreman
    taken: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)

    def event(self, kind: str, told: list[Any]) -> None:
        if kind == "found":
            self._found(told[0])
        elif kind in JOB_EVENTS:
            self._of_job(kind, *told)
        else:
            getattr(self.foreman if kind == "waiting" else self.foreman.watching, kind)(*told)

    def _of_job(self, kind: str, name: str, *told: Any) -> None:
        if kind not in ENDS or name not in self.ended:
            getattr(self.foreman, kind)(self.jobs[name], *told)
        if kind == "took":
            self.taken.add(name)
        if kind in ENDS:
            self.ended.add(name)

    def _found(self, name: str) -> None:
        """What a member took it will tell of itself; what it had no time to tell is told at the end."""
        if name in self.taken:
            self.found.add(name)
        elif name not in self.ended:
            self.ended.add(name)
            self.foreman.found(self.jobs[name])

    def close(self) -> None:
        for name in self.found - self.ended:
            self.foreman.found(self.jobs[name])


JOB_EVENTS = ("took", "finished", "failed", "advanced")
ENDS = ("finished", "failed")


def serve(pipe: Connection, jobs: list[Job], path: Path, data_dir: Path | None) -> None:
    """What a member does; it ends with its parent, however that ends."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=follow, args=(parent.sentinel,), daemon=True).start()
    keep_freed_memory()
    Hand(Store(path), Caller(pipe), 0, threads=1, data_dir=data_dir).work(jobs)
    pipe.send(("end",))


def follow(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


class Caller(Advancing):
    """A member's foreman and observer: says everything into the pipe."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    @property
    def watching(self) -> Observer:
        return self

    def took(self, job: Job) -> None:
        self.current = job
        self.pipe.send(("took", job.name))

    def finished(self, job: Job, seconds: float) -> None:
        self.pipe.send(("finished", job.name, seconds))

    def found(self, job: Job) -> None:
        self.pipe.send(("found", job.name))

    def failed(self, job: Job, why: str) -> None:
        self.pipe.send(("failed", job.name, why))

    def waiting(self, jobs: int) -> None:
        self.pipe.send(("waiting", jobs))

    def advanced(self, job: Job, done: int, rounds: int) -> None:
        self.pipe.send(("advanced", job.name, done, rounds))

    def fetching(self, file: str, done: int, total: int | None) -> None:
        self.pipe.send(("fetching", file, done, total))

    def federated(self, found: Audit) -> None:
        self.pipe.send(("federated", found))

    def noticed(self, notice: str) -> None:
        self.pipe.send(("noticed", notice))
