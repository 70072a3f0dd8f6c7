"""A run on disk: its plan, and for each cell the rounds so far and checkpoints to go on from.

plan.json                           what is to be done, resolved, and with which versions
audit-seed0.json                    what each federation is made of
cells/fedakd-seed0/cell.json        every field of the method and the run that determines its numbers
cells/fedakd-seed0/rounds.jsonl     one line a round: scores, contributions, bytes, failures
cells/fedakd-seed0/timings.jsonl    seconds of each round, apart because they never repeat
cells/fedakd-seed0/checkpoints/     round-00007/: server, clients, and a manifest with their checksums
summary.json, summary.md            written when all cells are done
costs.json                          passes, megabytes and seconds a round, by method
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from fedakd.cellfolder import ROUNDS, CellFolder, write_json
from fedakd.errors import PlanError
from fedakd.plan import Plan, resolve

RESULTS = ("summary.json", "summary.md", "costs.json")
LONG = 80  # characters of a method's text in the name of its folder


@dataclass(frozen=True)
class RunFolder:
    path: Path
    new: bool = False  # its plan was written by this process
    made: bool = False  # and so was the folder: it was not there before

    @staticmethod
    def create(path: Path, plan: Plan, versions: dict[str, str]) -> RunFolder:
        if (path / "plan.json").exists():
            raise PlanError(
                f"{path} already holds a run; continue it with --resume {path}, or choose another --out"
            )
        made = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / "plan.json", {"plan": plan.model_dump(), "versions": versions})
        return RunFolder(path, new=True, made=made)

    @staticmethod
    def open(path: Path) -> tuple[RunFolder, Plan]:
        try:
            stored = dict(json.loads((path / "plan.json").read_text())["plan"])
        except (FileNotFoundError, NotADirectoryError):
            raise PlanError(
                f"{path} holds no run: expected a plan.json in it, as `fedakd run` writes it"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise PlanError(f"{path / 'plan.json'} is damaged: {error}") from error
        return RunFolder(path), resolve(**stored)

    def extend(self, plan: Plan, rounds: int) -> Plan:
        """The folder's plan with more rounds, in the folder too; what is computed stays and counts.

        The number may be the plan's own while the run is not complete, so that a command that was stopped can
        be given again.
        """
        longer = resolve(**{**plan.model_dump(), "rounds": rounds})
        if rounds < plan.rounds or (rounds == plan.rounds and self._complete(plan)):
            raise PlanError(
                f"{self.path} has a plan of {plan.rounds} rounds already, --rounds {rounds} adds none; "
                f"expected more than {plan.rounds}, for instance --rounds {2 * plan.rounds}"
            )
        with self.locked():
            stored = json.loads((self.path / "plan.json").read_text())
            write_json(self.path / "plan.json", {**stored, "plan": longer.model_dump()})
            for name in RESULTS if rounds > plan.rounds else ():  # of the shorter run
                (self.path / name).unlink(missing_ok=True)
            for method, seed in product(longer.methods, longer.seeds):
                if cell := CellFolder.at(self.cell(method, seed, {}).path):
                    cell.extend(longer.rounds_of(method))
        return longer

    def _complete(self, plan: Plan) -> bool:
        """Whether every cell has all rounds of the plan."""
        cells = [(method, self.done(method, seed)) for method, seed in product(plan.methods, plan.seeds)]
        return all(cell and cell.fields.get(ROUNDS) == plan.rounds_of(method) for method, cell in cells)

    def discard_if_unused(self) -> None:
        """Takes away what a plan wrote that failed before its first cell began, and nothing else."""
        if not self.new or (self.path / "cells").exists():
            return
        written = ("plan.json", "lock", "audit-seed*.json", "federation-seed*", "judged-seed*")
        for own in [path for name in written for path in self.path.glob(name)]:
            own.unlink()
        if self.made and not any(self.path.iterdir()):
            self.path.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """For one process at a time; the lock ends with its process, however that ends."""
        import fcntl

        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PlanError(f"another process is at work in {self.path}; wait for it or end it") from None
            for spool in self.path.glob("spool-*"):  # left by a process that was killed
                shutil.rmtree(spool, ignore_errors=True)
            yield

    @property
    def spool(self) -> Path:
        return self.path / f"spool-{os.getpid()}"

    def rows(self, seed: int, leak: bool, asked: str) -> Path:
        """Where the rows of a federation lie."""
        return self.path / f"federation-seed{seed}{'-leaky' * leak}-{asked}.safetensors"

    def audit(self, seed: int, leak: bool, asked: str) -> Path:
        return self.path / f"audit-seed{seed}{'-leaky' * leak}.json"

    def judged(self, seed: int, leak: bool, asked: str) -> Path:
        """Where the test rows of a federation and their weights lie."""
        return self.path / f"judged-seed{seed}{'-leaky' * leak}-{asked}.safetensors"

    def done(self, method: str, seed: int) -> CellFolder | None:
        """The cell of the folder's plan, if its last round is there."""
        cell = CellFolder.at(self.cell(method, seed, {}).path)
        return cell if cell and cell.finished() is not None else None

    def cell(self, method: str, seed: int, fields: dict[str, Any]) -> CellFolder:
        name = re.sub(r"[^\w.+-]+", "_", method).strip("_")
        if len(name) > LONG:  # file systems end at 255
            name = f"{name[:LONG]}-{hashlib.sha256(method.encode()).hexdigest()[:8]}"
        path = self.path / "cells" / f"{name}-seed{seed}"
        return CellFolder(path, fields)
