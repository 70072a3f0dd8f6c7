"""Clients that exist in the data: hospitals, states, users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import PartitionError
from fedakd.partition.contract import Request, Rows


@dataclass(frozen=True)
class ByGroup:
    """One client per group, in sorted order; `groups` names each row's group, or the dataset's own do."""

    groups: Sequence[Any] | NDArray[Any] | None = field(default=None, compare=False, repr=False)

    def plan(self, request: Request, rng: np.random.Generator) -> GroupPlan:
        if self.groups is None:
            raise PartitionError("group needs a group per row: a dataset with `groups`, or ByGroup(groups)")
        rows, clients = len(request.y), request.clients
        if len(self.groups) != rows:
            raise PartitionError(f"group needs a group per row: {rows} rows, {len(self.groups)} groups")
        names, members = np.unique(np.asarray(self.groups), return_inverse=True)
        if len(names) != clients:
            raise PartitionError(f"the rows form {len(names)} groups, so clients={len(names)}; got {clients}")
        return GroupPlan(tuple(str(name) for name in names), members.astype(np.int64))


@dataclass(frozen=True, eq=False)
class GroupPlan:
    """Which group each row belongs to."""

    names: tuple[str, ...]
    members: NDArray[np.int64]

    def draw(self, rows: Rows, total: int, rng: np.random.Generator) -> list[Rows]:
        mixed = rng.permutation(rows)
        parts = [mixed[self.members[mixed] == group] for group in range(len(self.names))]
        parts = [part[: len(part) * total // len(rows)] for part in parts]
        empty = [name for name, part in zip(self.names, parts, strict=True) if len(part) == 0]
        if empty:
            raise PartitionError(
                f"{len(empty)} of {len(parts)} groups have no row among {total} of a pool of {len(rows)}, "
                f"first {empty[0]!r}; merge or leave out small groups, or raise the fraction"
            )
        return parts
