"""The audit as it was stored: what each client was given, and whether pools share rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fedakd.report.table import Entry, Table, count, number

Columns = dict[str, Callable[[dict[str, Any]], Entry]]

ROWS: Columns = {
    "train": lambda client: count(client["train"]["rows"]),
    "distinct": lambda client: count(client["train"]["distinct"]),
    "test": lambda client: count(client["test"]["rows"]),
    "distinct test": lambda client: count(client["test"]["distinct"]),
    "effective test": lambda client: _effective(client),
    "classes": lambda client: count(sum(n > 0 for n in client["labels"])),
}
SHIFT: Columns = {
    "shift asked": lambda client: _shift(client, "requested"),
    "realised": lambda client: _shift(client, "realised"),
    "drawn": lambda client: _shift(client, "drawn"),
    "on test": lambda client: _shift(client, "test_realised"),
    "effective n": lambda client: _shift(client, "effective_size", 0),
    "KL(x)": lambda client: _divergence(client),
    "KL(y)": lambda client: _shift(client, "label_kl", 3),
}
EFFECTIVE = (
    "Effective test: how many test rows of equal weight carry as much as those the client is judged on by "
    "their weights w, (sum w)² / sum w². "
)
FEW = (
    "!: fewer than 100 and than half of the client's test rows, accepted by force; its scores carry little. "
)
LEGEND = (
    "Shift: squared length of the mean in whitened space, as asked, in the weighted train pool, in the rows "
    "drawn and in the test pool. KL(x), KL(y): inputs (Gaussian) and labels against the pool."
)


def pools(audit: dict[str, Any], name: str) -> Table:
    rows = tuple(
        (Entry(pool), *(count(own[part]) for part in ("rows", "distinct", "duplicates")))
        for pool, own in audit["pools"].items()
    )
    return Table(f"{name}-pools", "Rows of each pool", ("pool", "rows", "distinct", "duplicates"), rows)


def clients(audit: dict[str, Any], name: str) -> Table:
    shifted = any(client["shift"] for client in audit["clients"])
    columns = ROWS | SHIFT if shifted else ROWS
    if not any(
        "effective_test_rows" in client for client in audit["clients"]
    ):  # stored before it was counted
        columns = {name: cell for name, cell in columns.items() if name != "effective test"}
    rows = tuple(
        (Entry(str(k), k), *(cell(client) for cell in columns.values()))
        for k, client in enumerate(audit["clients"])
    )
    caption = "What each client was given"
    return Table(f"{name}-given", caption, ("client", *columns), rows, _legend(audit, columns, shifted))


def few_test_rows(audit: dict[str, Any]) -> list[int]:
    """The clients judged on fewer effective test rows than the rule asks, which force accepted."""
    return [k for k, client in enumerate(audit["clients"]) if client.get("few_test_rows")]


def effective_test_rows(audit: dict[str, Any] | None, client: int) -> float:
    """The effective test rows of a client; nan where they were not counted."""
    rows = audit["clients"][client].get("effective_test_rows") if audit else None
    return math.nan if rows is None else float(rows)


def _legend(audit: dict[str, Any], columns: Columns, shifted: bool) -> str:
    effective = EFFECTIVE if shifted and "effective test" in columns else ""
    return (effective + (FEW if few_test_rows(audit) else "") + (LEGEND if shifted else "")).strip()


def _effective(client: dict[str, Any]) -> Entry:
    rows = client.get("effective_test_rows")
    if rows is None:
        return Entry("")
    return Entry(f"{rows:,.0f}!", rows) if client.get("few_test_rows") else number(rows, 0)


def verdict(audit: dict[str, Any]) -> str:
    """One sentence on rows shared between pools."""
    shared = {pair: rows for pair, rows in audit["shared"].items() if rows}
    if not shared:
        return "0 rows shared between pools."
    told = (f"{' and '.join(pair.split('/'))} share {rows} base rows" for pair, rows in shared.items())
    return f"LEAKY: {', '.join(told)}."


def leaks(audit: dict[str, Any]) -> bool:
    return bool(audit["leaky"]) or any(audit["shared"].values())


def overlap(audit: dict[str, Any]) -> int:
    """Base rows that are trained on and judged by."""
    return int(audit["shared"]["train/test"])


def divergence(audit: dict[str, Any] | None, client: int) -> float:
    """How far the client's inputs are from the pool: its KL; nan where that was not measured."""
    shift = audit["clients"][client]["shift"] if audit else None
    if not shift:
        return math.nan
    return math.inf if shift["gaussian_kl"] is None else float(shift["gaussian_kl"])


def train_rows(audit: dict[str, Any] | None, client: int) -> float:
    return float(audit["clients"][client]["train"]["rows"]) if audit else math.nan


def _shift(client: dict[str, Any], field: str, digits: int = 2) -> Entry:
    return number(client["shift"][field], digits) if client["shift"] else Entry("")


def _divergence(client: dict[str, Any]) -> Entry:
    """What is infinite was stored as nothing."""
    infinite = client["shift"] and client["shift"]["gaussian_kl"] is None
    return Entry("infinite") if infinite else _shift(client, "gaussian_kl")
