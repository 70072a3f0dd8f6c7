"""What a federation is made of, computed from its index arrays alone.

Two pools share a row if any client's part of one holds a base row that any client's part of the other holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from fedakd.errors import PartitionError
from fedakd.partition.contract import ClientShift, Rows

if TYPE_CHECKING:
    from fedakd.federation import Federation


SHIFT = ["asked", "realised", "drawn", "cosine", "eff. n", "share", "KL(y)", "KL(x)", "tried"]
LEGEND = (
    "asked, realised, drawn: squared shift of the mean; cosine: with the direction asked for; "
    "eff. n: effective sample size of the train pool, share: of the client's rows; "
    "KL(y), KL(x): labels and inputs (Gaussian) against the pool; tried: directions"
)


@dataclass(frozen=True)
class Count:
    """Rows of a part: how many, how many different ones, how many repeats."""

    rows: int
    distinct: int
    duplicates: int


@dataclass(frozen=True)
class ClientAudit:
    """One client's parts."""

    train: Count
    test: Count
    labels: tuple[int, ...]  # train rows of each class
    shift: ClientShift | None


@dataclass(frozen=True)
class Audit:
    """A federation by numbers; `shared` counts base rows that two pools have in common."""

    dataset: str
    partition: str
    seed: int
    evaluation: str
    leaky: bool
    pools: dict[str, Count]
    shared: dict[str, int]
    clients: tuple[ClientAudit, ...]
    warnings: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not any(self.shared.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def audit(federation: Federation) -> Audit:
    """Count rows, repeats and rows shared between pools, over all clients."""
    pools = {
        "train": np.concatenate([*federation.train]),
        "validation": federation.validation,
        "test": np.concatenate([*federation.test]),
    }
    judged = {**pools, "test": np.concatenate([pools["test"], federation.global_test])}
    return Audit(
        dataset=federation.dataset.name,
        partition=federation.partition,
        seed=federation.seed,
        evaluation=federation.evaluation,
        leaky=federation.leaky,
        pools={name: count(rows) for name, rows in pools.items()},
        shared={f"{a}/{b}": len(np.intersect1d(judged[a], judged[b])) for a, b in combinations(judged, 2)},
        clients=tuple(_client(federation, k) for k in range(len(federation.train))),
        warnings=federation.warnings,
    )


def check(found: Audit) -> None:
    """Raise unless the pools are apart, or the federation says of itself that it leaks."""
    if not found.leaky and not found.clean:
        raise PartitionError(
            f"pools must be disjoint, but {_shared(found)}; such a federation proves nothing"
        )


def count(rows: Rows) -> Count:
    """How many rows, how many different ones, how many repeats.

    >>> count(np.array([4, 4, 7]))
    Count(rows=3, distinct=2, duplicates=1)
    """
    distinct = len(np.unique(rows))
    return Count(len(rows), distinct, len(rows) - distinct)


def table(found: Audit) -> tuple[list[str], list[list[str]]]:
    """Headers and one row of text per client, then their total."""
    headers = ["client", "train", "distinct", "test", "distinct", "classes"]
    rows = [
        [str(k), *_counted(one.train, one.test), str(sum(n > 0 for n in one.labels))]
        for k, one in enumerate(found.clients)
    ]
    total = ["all", *_counted(found.pools["train"], found.pools["test"]), ""]
    if any(one.shift for one in found.clients):
        headers += SHIFT
        rows = [[*row, *_shift_cells(one.shift)] for row, one in zip(rows, found.clients, strict=True)]
        total += [""] * 9
    return headers, [*rows, total]


def lines(found: Audit) -> list[str]:
    """The audit as plain text: a title, the table, shared rows, warnings."""
    headers, rows = table(found)
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    clients = f"{len(found.clients)} clients"
    return [
        f"{found.dataset}, {found.partition}, {clients}, seed {found.seed}, {found.evaluation} tests",
        *("  ".join(cell.rjust(n) for cell, n in zip(row, widths, strict=True)) for row in (headers, *rows)),
        f"{found.pools['validation'].rows} validation rows",
        verdict(found),
        *(f"warning: {warning}" for warning in found.warnings),
    ]


def verdict(found: Audit) -> str:
    """One sentence on rows shared between pools."""
    return "0 rows shared between pools" if found.clean else f"LEAKY: {_shared(found)}"


def _shared(found: Audit) -> str:
    return ", ".join(
        f"{' and '.join(pair.split('/'))} share {n} base rows" for pair, n in found.shared.items() if n
    )


def _client(federation: Federation, k: int) -> ClientAudit:
    y, classes = federation.dataset.y, federation.dataset.classes
    labels = np.bincount(y[federation.train[k]], minlength=classes)
    return ClientAudit(
        train=count(federation.train[k]),
        test=count(federation.test[k]),
        labels=tuple(int(n) for n in labels),
        shift=federation.shifts[k] if federation.shifts else None,
    )


def _counted(*counts: Count) -> list[str]:
    return [str(n) for one in counts for n in (one.rows, one.distinct)]


def _shift_cells(shift: ClientShift | None) -> list[str]:
    if shift is None:
        return [""] * 9
    squares: Sequence[float] = (shift.requested, shift.realised, shift.drawn, shift.alignment)
    shown = [f"{number:.2f}" for number in squares]
    effective = [f"{shift.effective_size:.0f}", f"{shift.effective_share:.1%}"]
    return [*shown, *effective, f"{shift.label_kl:.3f}", f"{shift.gaussian_kl:.2f}", str(shift.tried)]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
