"""What a federation is made of, computed from its index arrays alone.

Two pools share a row if any client's part of one holds a base row that any client's part of the other holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from fedakd.errors import PartitionError
from fedakd.partition.contract import ClientShift, Rows
from fedakd.partition.guard import carries, needed

if TYPE_CHECKING:
    from fedakd.federation import Federation


LEGEND = (
    "asked, realised, drawn: squared shift of the mean, of the train pool and of the rows drawn; "
    "on test: of the test pool by the same weights, ± the standard error; "
    "cosine: with the direction asked for; "
    "reach: the largest that can be asked in this direction, furthest: in all tried; "
    "eff. n: effective sample size of the train pool, share: of the client's rows at scale 1; "
    "KL(y), KL(x): labels and inputs (Gaussian) against the pool; "
    "cov: what the covariance alone contributes to the KL of the weighted train pool"
)
EFFECTIVE = (
    "effective: how many test rows of equal weight carry as much as those the client is judged on by their "
    "weights w, (sum w)^2 / sum w^2"
)
FEW = "!: fewer than 100 and than half of the client's test rows, accepted by force; its scores carry little"


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
    effective_test_rows: float = math.nan  # of the rows it is judged on, its own or the common ones
    few_test_rows: bool = False  # fewer effective ones than the rule asks, accepted by force


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
        plain: dict[str, Any] = finite(asdict(self))
        return plain


def audit(federation: Federation) -> Audit:
    """Count rows, repeats and rows shared between pools, over all clients."""
    pools = {
        "train": np.concatenate([*federation.train]),
        "validation": federation.validation,
        "test": np.concatenate([*{id(rows): rows for rows in federation.test}.values()]),  # shared ones once
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
    (headers, rows), *more = blocks(found)
    columns = [name for names, _ in more for name in names[1:]]
    return headers + columns, [row + [c for _, own in more for c in own[k][1:]] for k, row in enumerate(rows)]


def blocks(found: Audit) -> list[tuple[list[str], list[list[str]]]]:
    """The table in parts that fit on a terminal: rows, then shift; each part begins with the client."""
    rows = [
        [str(k), *_counted(one.train, one.test), _effective(one), str(sum(n > 0 for n in one.labels))]
        for k, one in enumerate(found.clients)
    ]
    total = ["all", *_counted(found.pools["train"], found.pools["test"]), "", ""]
    shifts = [one.shift for one in found.clients]
    return [
        (["client", "train", "distinct", "test", "distinct", "effective", "classes"], [*rows, total]),
        *(_block(columns, shifts) for columns in _shift_columns(shifts)),
    ]


def legends(found: Audit) -> list[str]:
    """What the columns and marks of the tables mean."""
    shifted = [LEGEND] if any(one.shift for one in found.clients) else []
    weighed = any(one.test.rows > math.ceil(one.effective_test_rows) for one in found.clients)
    marked = [FEW] if any(one.few_test_rows for one in found.clients) else []
    return [*([EFFECTIVE] if weighed else []), *marked, *shifted]


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
    shift = federation.shifts[k] if federation.shifts else None
    effective = federation.effective_test_rows(k)
    return ClientAudit(
        train=count(federation.train[k]),
        test=count(federation.test[k]),
        labels=tuple(int(n) for n in labels),
        shift=shift,
        effective_test_rows=effective,
        few_test_rows=shift is not None and not carries(effective, needed(shift.test_size)),
    )


def _effective(client: ClientAudit) -> str:
    return f"{client.effective_test_rows:.0f}{'!' * client.few_test_rows}"


def _counted(*counts: Count) -> list[str]:
    return [str(n) for one in counts for n in (one.rows, one.distinct)]


Columns = dict[str, Callable[[ClientShift], str]]


def _block(columns: Columns, shifts: Sequence[ClientShift | None]) -> tuple[list[str], list[list[str]]]:
    cells = [[cell(shift) if shift else "" for cell in columns.values()] for shift in shifts]
    rows = [[str(k), *own] for k, own in enumerate(cells)]
    return ["client", *columns], [*rows, ["all", *[""] * len(columns)]]


def _shift_columns(shifts: Sequence[ClientShift | None]) -> list[Columns]:
    """What is told of a shift: what was asked and came of it, then what is left; nothing where none was."""
    some = [shift for shift in shifts if shift]
    left = LEFT
    if any(not math.isnan(shift.kl_requested) for shift in some):
        left = left | DIVERGENCE
    if any(not math.isnan(shift.cov_requested) for shift in some):
        left = left | COVARIANCE
    return [MOVED, left] if some else []


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}"


def _with_error(value: float, error: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f} ±{error:.2f}"


MOVED: Columns = {
    "asked": lambda shift: _number(shift.requested),
    "realised": lambda shift: _number(shift.realised),
    "on test": lambda shift: _with_error(shift.test_realised, shift.test_error),
    "drawn": lambda shift: _number(shift.drawn),
    "cosine": lambda shift: _number(shift.alignment),
    "reach": lambda shift: _number(shift.reach),
    "furthest": lambda shift: _number(shift.furthest),
    "tried": lambda shift: str(shift.tried),
}
LEFT: Columns = {
    "eff. n": lambda shift: f"{shift.effective_size:.0f}",
    "share": lambda shift: f"{shift.effective_share:.1%}",
    "KL(y)": lambda shift: f"{shift.label_kl:.3f}",
    "KL(x)": lambda shift: f"{shift.gaussian_kl:.2f}",
}
DIVERGENCE: Columns = {
    "KL asked": lambda shift: _number(shift.kl_requested),
    "KL realised": lambda shift: _number(shift.kl_realised),
}
COVARIANCE: Columns = {
    "cov asked": lambda shift: _number(shift.cov_requested),
    "cov realised": lambda shift: _number(shift.cov_realised),
    "cov reach": lambda shift: _number(shift.cov_reach),
}


def finite(value: Any) -> Any:
    """The value with None for every number in it that is not finite, as JSON has no others."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
