"""Progress of a comparison: what is being computed, what is done, and the time left."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from fedakd.audit import Audit
from fedakd.compare.jobs import Job
from fedakd.compare.work import Advancing
from fedakd.experiment import Observer

NARROW = 110  # columns below which there is no room for bars


class Board(Advancing):
    """On a terminal bars that move; elsewhere a line for each cell that ends."""

    def __init__(self, console: Console, jobs: list[Job], quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.left = {job.name: job for job in jobs}
        self.total, self.failures = len(jobs), list[tuple[Job, str]]()
        self.warnings: list[str] = []
        self.spent: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.active: dict[str, TaskID] = {}
        self.downloads: dict[str, TaskID] = {}
        self.at_once = 1  # cells that were computed side by side, at most
        bar = [BarColumn(bar_width=24)] if console.width >= NARROW else []
        moving = not quiet and console.is_terminal
        columns = (TextColumn("{task.description}"), *bar, TextColumn("{task.fields[status]}"))
        self.bars = Progress(*columns, console=console, transient=True, disable=not moving)
        self.whole = self.bars.add_task("all cells", total=self.total, status="")

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.bars.stop()

    @property
    def watching(self) -> Observer:
        return self

    def took(self, job: Job) -> None:
        self.current = job
        self.active[job.name] = self.bars.add_task(escape(job.label), total=None, status="")
        self.at_once = max(self.at_once, len(self.active))

    def advanced(self, job: Job, done: int, rounds: int) -> None:
        if job.name in self.active:
            self.bars.update(
                self.active[job.name], completed=done, total=rounds, status=f"round {done}/{rounds}"
            )

    def finished(self, job: Job, seconds: float) -> None:
        self.spent[job.plan.dataset, job.method].append(seconds)
        self._ended(job, f"{seconds:.0f} s")

    def found(self, job: Job) -> None:
        self._ended(job, "")

    def failed(self, job: Job, why: str) -> None:
        self.failures.append((job, why))
        self._ended(job, "failed")
        self.console.print(f"[red]{escape(job.label)} failed: {escape(why)}[/]")

    def waiting(self, jobs: int) -> None:
        self.bars.update(self.whole, status=f"waiting for {jobs} that other processes compute")

    def _ended(self, job: Job, told: str) -> None:
        self.left.pop(job.name, None)
        if job.name in self.active:
            self.bars.remove_task(self.active.pop(job.name))
        done = self.total - len(self.left)
        left = self.time_left()
        self.bars.update(self.whole, completed=done, status=f"{done}/{self.total}{left}")
        if told and not self.quiet and not self.console.is_terminal:
            line = f"[{done}/{self.total}] {job.label}: {told}{left}"
            self.console.print(line, soft_wrap=True, highlight=False, markup=False)

    def time_left(self) -> str:
        """From what cells of the same method and dataset took here; medians, as a machine may have slept."""
        known = [one for own in self.spent.values() for one in own]
        if not known or not self.left:
            return ""
        alike = [self.spent.get((job.plan.dataset, job.method), known) for job in self.left.values()]
        return f", about {duration(sum(map(median, alike)) / min(self.at_once, len(alike)))} left"

    def fetching(self, file: str, done: int, total: int | None) -> None:
        if file not in self.downloads:
            if not self.quiet:
                self.console.print(f"downloading {escape(file)}")
            self.downloads[file] = self.bars.add_task(f"downloading {escape(file)}", status="")
        told, shown = f"{done / 1e6:.1f} MB", done != total
        self.bars.update(self.downloads[file], completed=done, total=total, status=told, visible=shown)

    def federated(self, found: Audit) -> None:
        """A federation is drawn once for each process; its warnings are told once."""
        where = f"{found.dataset}, {found.partition}, seed {found.seed}"
        for warning in found.warnings:
            line = f"{where}: {warning}"
            if line not in self.warnings:
                self.warnings.append(line)
                self.noticed(f"warning: {line}")

    def noticed(self, notice: str) -> None:
        if not self.quiet:
            self.console.print(f"[yellow]{escape(notice)}[/]", soft_wrap=True)


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(610), duration(9000)
    ('42 s', '10 min', '2 h 30 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
