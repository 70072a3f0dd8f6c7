"""The audit counts what is there and finds what must not be."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fedakd import summary, tables
from fedakd.audit import audit, check, legends, lines, table, verdict
from fedakd.errors import PartitionError
from fedakd.examples import Examples
from fedakd.federation import Federation
from fedakd.partition import ClientShift
from fedakd.partition.contract import Labels, Rows
from fedakd.plan import resolve


@dataclass(frozen=True)
class Plain:
    y: Labels
    name: str = "plain"
    classes: int = 3

    @property
    def x(self) -> Labels:
        return self.y

    def examples(self, rows: Rows) -> Examples:
        raise NotImplementedError


SHIFT = ClientShift(5.0, 4.99, 5.2, 0.8, 120.0, 0.4, 2, 0.1, math.inf, 3, 5.1, 0.4, 9.0, 11.0)


def federation(**change: Any) -> Federation:
    whole = Federation(
        dataset=Plain(np.arange(30) % 3),
        partition="iid",
        seed=3,
        train=(np.array([0, 1, 1, 4]), np.array([1, 3])),
        test=(np.array([10, 10]), np.array([11])),
        validation=np.array([20, 21]),
        global_test=np.array([10, 11, 12]),
    )
    return replace(whole, **change)


def test_rows_repeats_and_labels_are_counted() -> None:
    found = audit(federation())
    train = found.pools["train"]
    assert (train.rows, train.distinct, train.duplicates) == (6, 4, 2)
    assert (found.clients[0].train.rows, found.clients[0].train.distinct) == (4, 3)
    assert (found.clients[0].test.rows, found.clients[0].test.duplicates) == (2, 1)
    assert found.clients[0].labels == (1, 3, 0)
    assert found.pools["validation"].rows == 2


def test_repeats_within_a_pool_even_across_clients_are_no_leak() -> None:
    found = audit(federation())
    assert found.shared == {"train/validation": 0, "train/test": 0, "validation/test": 0}
    check(found)
    assert verdict(found) == "0 rows shared between pools"


@pytest.mark.parametrize(
    ("planted", "pair"),
    [
        ({"test": (np.array([3]), np.array([11]))}, "train/test"),
        ({"validation": np.array([20, 4])}, "train/validation"),
        ({"validation": np.array([20, 11])}, "validation/test"),
        ({"global_test": np.array([10, 11, 0])}, "train/test"),
        ({"global_test": np.array([10, 11, 20])}, "validation/test"),
    ],
)
def test_a_planted_leak_is_found_and_refused(planted: dict[str, Any], pair: str) -> None:
    found = audit(federation(**planted))
    assert found.shared[pair] == 1
    assert sum(found.shared.values()) == 1
    with pytest.raises(PartitionError, match=f"{pair.replace('/', ' and ')} share 1 base rows"):
        check(found)


def test_a_leaky_federation_is_reported_instead() -> None:
    found = audit(federation(validation=np.array([0]), leaky=True, warnings=("leaks",)))
    check(found)
    assert verdict(found) == "LEAKY: train and validation share 1 base rows"
    assert lines(found)[-2:] == ["LEAKY: train and validation share 1 base rows", "warning: leaks"]


def test_the_table_has_a_row_per_client_and_a_total() -> None:
    headers, rows = table(audit(federation()))
    assert headers == ["client", "train", "distinct", "test", "distinct", "effective", "classes"]
    assert rows == [
        ["0", "4", "3", "2", "1", "1", "2"],
        ["1", "2", "2", "1", "1", "1", "2"],
        ["all", "6", "4", "3", "2", "", ""],
    ]


def test_effective_rows_are_kishs_and_not_the_distinct_ones() -> None:
    repeated = np.array([10] * 8 + [11, 12])
    (client, other) = audit(federation(test=(repeated, np.array([11, 12])))).clients
    assert client.test.distinct == 3
    assert client.effective_test_rows == pytest.approx(10**2 / (8**2 + 1 + 1))
    assert other.effective_test_rows == 2.0


def test_weights_of_copies_of_a_row_are_added() -> None:
    rows = np.array([10, 10, 11, 12])
    weighted = federation(test=(rows, rows), weights=(np.array([0.3, 0.2, 0.5, 0.0]), np.full(4, 0.25)))
    assert [weighted.effective_test_rows(k) for k in (0, 1)] == pytest.approx([2.0, 1 / (0.25 + 2 / 16)])
    assert replace(weighted, evaluation="global").effective_test_rows(0) == 3.0
    assert replace(weighted, evaluation="global").test_weights(0) is None


def test_a_client_forced_to_too_few_effective_test_rows_is_marked() -> None:
    thin, enough = np.array([0.98, 0.01, 0.01]), np.full(3, 1 / 3)
    pool = np.array([10, 11, 12])
    shift = replace(SHIFT, test_size=4)  # asks for 2 effective rows
    found = audit(federation(test=(pool, pool), weights=(thin, enough), shifts=(shift, shift)))
    assert [client.few_test_rows for client in found.clients] == [True, False]
    _, rows = table(found)
    assert [row[5] for row in rows] == ["1!", "3", ""]
    assert any(line.startswith("!: fewer than 100") for line in legends(found))
    assert found.pools["test"].rows == 3  # the pool that all share counts once
    assert found.to_dict()["clients"][0]["few_test_rows"] is True


def test_shifts_widen_the_table() -> None:
    headers, rows = table(audit(federation(shifts=(SHIFT, SHIFT))))
    assert all(len(row) == len(headers) for row in rows)
    shown = dict(zip(headers[7:], rows[0][7:], strict=True))
    assert (shown["asked"], shown["realised"], shown["eff. n"]) == ("5.00", "4.99", "120")
    assert (shown["share"], shown["KL(x)"], shown["tried"]) == ("40.0%", "inf", "3")
    assert (shown["on test"], shown["reach"], shown["furthest"]) == ("5.10 ±0.40", "9.00", "11.00")


def test_what_was_asked_by_kl_or_of_the_covariance_has_columns_of_its_own() -> None:
    by_kl = replace(SHIFT, requested=math.nan, kl_requested=1.5, kl_realised=1.49, reach=7.0)
    headers, rows = table(audit(federation(shifts=(by_kl, by_kl))))
    shown = dict(zip(headers[7:], rows[0][7:], strict=True))
    assert (shown["asked"], shown["KL asked"], shown["KL realised"]) == ("", "1.50", "1.49")
    assert "cov asked" not in shown
    bent = replace(SHIFT, cov_requested=0.3, cov_realised=0.29, cov_reach=2.0)
    headers, rows = table(audit(federation(shifts=(bent, bent))))
    shown = dict(zip(headers[7:], rows[0][7:], strict=True))
    assert (shown["cov asked"], shown["cov realised"], shown["cov reach"]) == ("0.30", "0.29", "2.00")


def test_plain_text_is_aligned() -> None:
    text = lines(audit(federation(shifts=(SHIFT, SHIFT))))
    assert text[0] == "plain, iid, 2 clients, seed 3, local tests"
    assert len({len(line) for line in text[1:5]}) == 1


def test_the_summary_tells_the_shift_of_the_first_seed_and_stores_all() -> None:
    still, moved = audit(federation()), audit(federation(shifts=(SHIFT, SHIFT)))
    assert summary.shifted([still, moved]) == [moved]
    title, asked, left, legend = tables.shift_tables(moved)
    assert title == "Shift of the clients, iid, seed 3:"
    assert "| 1 | 5.00 | 4.99 | 5.10 ±0.40 | 5.20 | 0.80 | 9.00 | 11.00 | 3 |" in asked.splitlines()
    assert "| 1 | 120 | 40.0% | 0.100 | inf |" in left.splitlines()
    assert legend.startswith("Asked, realised, drawn: squared shift of the mean")
    stored = summary.to_dict(resolve(), [], [], [still, moved])["shifts"]
    assert json.loads(json.dumps(stored, allow_nan=False))["3"][0]["furthest"] == 11.0
    assert "shifts" not in summary.to_dict(resolve(), [], [], [still])


def test_json_holds_plain_values_only() -> None:
    found = audit(federation(shifts=(SHIFT, SHIFT)))
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["shared"]["train/test"] == 0
    assert plain["clients"][0]["shift"]["gaussian_kl"] is None
    assert plain["clients"][0]["shift"]["realised"] == 4.99
    assert plain["clients"][0]["shift"]["reach"] == 9.0
    assert plain["clients"][0]["shift"]["kl_requested"] is None
