"""Live progress of a run: round, clients done, time left, current scores."""

from __future__ import annotations

import time
from statistics import fmean
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedakd.audit import Audit, blocks, legends, verdict
from fedakd.cli.catalogue import grid
from fedakd.experiment import Cell
from fedakd.rounds import Round


class Watch:
    """On a terminal a bar that moves; elsewhere a line a round."""

    def __init__(self, console: Console, cells: int, quiet: bool = False) -> None:
        self.console, self.cells, self.quiet = console, cells, quiet
        self.warnings: list[str] = []
        self.notices: list[str] = []
        self.audits: list[Audit] = []
        bar = [BarColumn(bar_width=24)] if console.width >= 110 else []
        self.bar = Progress(
            TextColumn("{task.description}"),
            *bar,
            TextColumn("{task.fields[status]}"),
            TextColumn("{task.fields[scores]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self.task: TaskID | None = None
        self.number = self.clients = self.rounds = self.round = self.finished = self.first = 0
        self.downloads: dict[str, TaskID] = {}
        self.label = self.stage = ""
        self.began_at = 0.0

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.bar.stop()

    def fetching(self, file: str, done: int, total: int | None) -> None:
        if file not in self.downloads:
            if not self.quiet:
                self.console.print(f"downloading {escape(file)}")
            self.downloads[file] = self.bar.add_task(f"downloading {escape(file)}", status="", scores="")
        self.bar.update(self.downloads[file], completed=done, total=total, visible=done != total)

    def federated(self, found: Audit) -> None:
        self.audits.append(found)
        self.warnings += [warning for warning in found.warnings if warning not in self.warnings]
        if self.quiet:
            return
        title = f"Audit: {found.dataset}, {found.partition}, seed {found.seed}, {found.evaluation} tests"
        parts = blocks(found)  # all their columns fit on no terminal
        for part in parts:
            self.console.print(grid(*part, title))
            title = ""
        for legend in legends(found):
            self.console.print(legend, style="dim", highlight=False)
        pools = ", ".join(f"{name} {count.rows}" for name, count in found.pools.items())
        style = "green" if found.clean else "bold red"
        self.console.print(f"rows: {pools}; [{style}]{escape(verdict(found))}[/]")
        for warning in found.warnings:
            self.console.print(f"[yellow]warning: {escape(warning)}[/]")

    def began(self, method: str, seed: int, rounds: int, done: int, clients: int) -> None:
        self.number += 1
        self.clients, self.rounds, self.round, self.first, self.finished = clients, rounds, done, done, 0
        self.label = f"[{self.number}/{self.cells}] {method}, seed {seed}"
        self.began_at = time.monotonic()
        total, completed = rounds * clients * 2, done * clients * 2
        short = self.label if len(self.label) <= LABEL else f"{self.label[: LABEL - 1]}…"
        self.task = self.bar.add_task(escape(short), total=total, completed=completed, status="", scores="")
        if done and not self.quiet:
            self.console.print(f"{escape(self.label)}: continuing after round {done}")

    def progressed(self, stage: str, client: int) -> None:
        if self.task is None or stage not in ("train", "evaluate"):
            return
        self.finished = self.finished + 1 if stage == self.stage else 1
        self.stage = stage
        status = f"round {self.round + 1}/{self.rounds} {stage} {self.finished}/{self.clients}"
        self.bar.update(self.task, advance=1, status=status)

    def judged(self, record: Round) -> None:
        self.round, self.stage = record.number, ""
        shown = (
            "not judged"
            if not record.scores
            else ", ".join(
                f"{measure.removesuffix('/accuracy')} {100 * fmean(own.values()):.1f}"
                for measure, own in record.scores.items()
                if measure.endswith("/accuracy")
            )
        )
        if self.task is not None:
            completed = record.number * self.clients * 2
            self.bar.update(self.task, completed=completed, scores=shown)
        if not self.quiet and not self.console.is_terminal:
            pace = (time.monotonic() - self.began_at) / (record.number - self.first)
            left = f"about {pace * (self.rounds - record.number):.0f} s left"
            line = f"{escape(self.label)}: round {record.number}/{self.rounds}, {shown}, {left}"
            self.console.print(line, soft_wrap=True, highlight=False)

    def noticed(self, notice: str) -> None:
        self.notices.append(notice)
        self.console.print(f"[yellow]{escape(notice)}[/]")

    def ended(self, cell: Cell) -> None:
        if self.task is not None:
            self.bar.remove_task(self.task)
            self.task = None
        elif not self.quiet:
            self.number += 1
            self.console.print(
                f"[{self.number}/{self.cells}] {escape(cell.method)}, seed {cell.seed}: already done"
            )


LABEL = 20  # of a cell, on the line with the bar
