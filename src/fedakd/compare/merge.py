"""Parts of one comparison, computed in several places, as one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from fedakd.cellfolder import CellFolder, digest
from fedakd.compare.jobs import Job, jobs_of
from fedakd.compare.results import Recorded, recorded
from fedakd.compare.store import Store
from fedakd.drawn import asked
from fedakd.errors import PlanError


@dataclass(frozen=True)
class Merged:
    copied: int
    present: int
    missing: int
    told: Recorded


def store_beside(out: Path, part: Path) -> Store:
    """Where the cells of what is merged go: for the paper's tables beside the folder, as in the parts."""
    told = recorded(part)
    return Store(out / os.path.relpath(told.store.path, part)) if told.table else Store(out)


def merge(folders: Sequence[Path], into: Store) -> Merged:
    """Copies every cell that is done; parts of different comparisons and contradictions are refused."""
    parts = [recorded(folder) for folder in folders]
    first = parts[0]
    for folder, part in zip(folders, parts, strict=True):
        if part.comparison != first.comparison:
            raise PlanError(f"{folder} holds another comparison than {folders[0]}; merge parts of one only")
    stores = [part.store for part in parts]
    counts = [taken(job, stores, into) for job in jobs_of(first.comparison)]
    copied, present, missing = (counts.count(kind) for kind in ("copied", "present", "missing"))
    return Merged(copied, present, missing, first._replace(store=into, names={}))


def taken(job: Job, stores: Sequence[Store], into: Store) -> str:
    with into.claim(job.name) as free:
        if not free:
            raise PlanError(f"another process computes {job.label} in {into.path}; wait for it, or end it")
        return take(job, stores, into)


def take(job: Job, stores: Sequence[Store], into: Store) -> str:
    """One job's cell and its rows from whoever has them."""
    found = [(store, cell) for store in stores if (cell := store.done(job.name))]
    own = into.done(job.name)
    for _, cell in found:
        agree(job, cell, own or found[0][1])
    if own:
        return "present"
    if not found:
        return "missing"
    store, cell = found[0]
    for leak in (False, True):
        copy_rows(job, store, into, leak)
    copy_whole(cell.path, into.path / "cells" / job.name)
    return "copied"


def agree(job: Job, one: CellFolder, other: CellFolder) -> None:
    if one.identity != other.identity or digest(one.path / ROUNDS) != digest(other.path / ROUNDS):
        raise PlanError(
            f"{job.label} was computed twice with different results, in {one.path} and {other.path}: "
            "on other rows, or with other versions; keep one of them"
        )


def copy_rows(job: Job, store: Store, into: Store, leak: bool) -> None:
    name = asked(job.plan, job.seed, leak)
    for place in (store.rows, store.audit, store.judged):
        theirs = place(job.seed, leak, name)
        ours = into.path / "federations" / theirs.name
        if theirs.exists() and not ours.exists():
            ours.parent.mkdir(parents=True, exist_ok=True)
            partial = ours.with_name(f"{ours.name}.{uuid4().hex}")
            shutil.copy2(theirs, partial)
            partial.replace(ours)


def copy_whole(theirs: Path, ours: Path) -> None:
    """There whole or not at all; what was there and was not done is kept aside."""
    if unfinished := CellFolder.at(ours):
        unfinished.set_aside()
    partial = ours.parent.parent / "partial" / uuid4().hex
    shutil.copytree(theirs, partial, ignore=shutil.ignore_patterns("checkpoints"))
    shutil.rmtree(ours, ignore_errors=True)
    ours.parent.mkdir(parents=True, exist_ok=True)
    partial.rename(ours)


ROUNDS = "rounds.jsonl"
