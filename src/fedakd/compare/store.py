"""Cells by the fingerprint of their fields, for any number of comparisons and of processes at once.

cells/8f0c.../          one method and seed; see `fedakd.cellfolder`
federations/51ab...     the rows of a federation (.safetensors) and their audit (.json)
locks/                  who is at work on what; a lock ends with its process, however that ends
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from fedakd.cellfolder import CellFolder
from fedakd.errors import PlanError
from fedakd.judged import SUFFIX


@dataclass(frozen=True)
class Store:
    path: Path

    def usable(self) -> Store:
        """Itself, if it is a folder that can be written to, or can be made one."""
        try:
            (self.path / "locks").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = f"{error.strerror}: {error.filename}"
            raise PlanError(
                f"cells need a folder, {self.path} cannot be one ({why}); choose another"
            ) from error
        return self

    def rows(self, seed: int, leak: bool, asked: str) -> Path:
        return self._federation(asked).with_suffix(".safetensors")

    def audit(self, seed: int, leak: bool, asked: str) -> Path:
        return self._federation(asked).with_suffix(".json")

    def judged(self, seed: int, leak: bool, asked: str) -> Path:
        return self._federation(asked).with_suffix(SUFFIX)

    def _federation(self, asked: str) -> Path:
        return self.path / "federations" / asked

    def cell(self, method: str, seed: int, fields: dict[str, Any]) -> CellFolder:
        """Without checkpoints once it is done: nothing would go on from them."""
        unplaced = CellFolder(self.path, fields, kept=0)
        return replace(unplaced, path=self.path / "cells" / unplaced.name)

    def done(self, name: str) -> CellFolder | None:
        """The cell of that name, if its last round is there and its files are those that were written."""
        cell = CellFolder.at(self.path / "cells" / name, kept=0)
        return cell if cell and cell.name == name and cell.finished() is not None else None

    @contextmanager
    def claim(self, name: str, *, wait: bool = False) -> Iterator[bool]:
        """True if nobody else is at work on it, for as long as the block lasts."""
        (self.path / "locks").mkdir(parents=True, exist_ok=True)
        with (self.path / "locks" / name).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
            else:
                yield True

    @contextmanager
    def spool(self) -> Iterator[Path]:
        """A folder for messages between processes; those of processes that were killed are removed."""
        for old in (self.path / "spools").glob("*"):
            with self.claim(f"spool-{old.name}") as abandoned:
                if abandoned:
                    shutil.rmtree(old, ignore_errors=True)
                    (self.path / "locks" / f"spool-{old.name}").unlink(missing_ok=True)
        own = uuid4().hex
        with self.claim(f"spool-{own}"):
            try:
                yield self.path / "spools" / own
            finally:
                shutil.rmtree(self.path / "spools" / own, ignore_errors=True)
                (self.path / "locks" / f"spool-{own}").unlink(missing_ok=True)
