"""Effective test rows in the report's audit, and audits that were stored before they were counted."""

from __future__ import annotations

from typing import Any

import pytest

from fedakd.audit import audit
from fedakd.data import load
from fedakd.federation import federate
from fedakd.report.audit import clients, effective_test_rows, few_test_rows


@pytest.fixture(scope="module")
def forced() -> dict[str, Any]:
    return audit(federate(load("digits"), "ics(4, force=true, directions=4)", 4)).to_dict()


def old(stored: dict[str, Any]) -> dict[str, Any]:
    new = ("effective_test_rows", "few_test_rows")
    fields = [{key: client[key] for key in client if key not in new} for client in stored["clients"]]
    return {**stored, "clients": fields}


def test_effective_rows_have_a_column_and_few_of_them_a_mark(forced):
    table = clients(forced, "x")
    shown = [row[table.headers.index("effective test")].text for row in table.rows]
    marked = [k for k, text in enumerate(shown) if text.endswith("!")]
    assert marked
    assert marked == few_test_rows(forced)
    assert [effective_test_rows(forced, k) for k in range(4)] == pytest.approx(
        [float(text.rstrip("!")) for text in shown], abs=0.5
    )
    assert "!: fewer than 100" in table.note


def test_nothing_is_marked_where_enough_rows_are_left():
    stored = audit(federate(load("digits"), "ics(1)", 4)).to_dict()
    assert few_test_rows(stored) == []
    assert "!:" not in clients(stored, "x").note


def test_audits_stored_before_show_nothing(forced):
    table = clients(old(forced), "x")
    assert "effective test" not in table.headers
    assert "distinct test" in table.headers
    assert few_test_rows(old(forced)) == []
    assert effective_test_rows(old(forced), 0) != effective_test_rows(old(forced), 0)  # nan
    assert effective_test_rows(None, 0) != effective_test_rows(None, 0)
