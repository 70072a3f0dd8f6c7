"""Figures are written in three forms, with their numbers, and always the same bytes."""

from __future__ import annotations

import csv

import pytest

from fedakd import figures


def test_a_figure_is_written_in_every_form_and_again_with_the_same_bytes(tmp_path):
    for folder in ("a", "b"):
        with figures.drawn(tmp_path / folder / "line", columns=2) as (left, right):
            left.plot([1, 2, 3], label="one")
            left.legend()
            right.scatter([1, 2], [3, 4])
    first, second = (sorted((tmp_path / folder).iterdir()) for folder in ("a", "b"))
    assert [path.name for path in first] == ["line.pdf", "line.png", "line.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_nothing_is_written_where_drawing_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), figures.drawn(tmp_path / "line") as (axes,):
        axes.plot([1 / 0])
    assert not list(tmp_path.iterdir())


def test_numbers_go_beside_it(tmp_path):
    figures.write_csv(tmp_path / "new" / "line.csv", [{"a": 1, "b": 0.5}, {"a": 2, "b": None}])
    with (tmp_path / "new" / "line.csv").open() as file:
        assert list(csv.DictReader(file)) == [{"a": "1", "b": "0.5"}, {"a": "2", "b": ""}]
