"""Over all columns methods are compared with FedAKD, paired over what they share."""

from __future__ import annotations

import math

import numpy as np

from fedakd.paper.overall import against_line, notes_of, ranks_line


def ahead(lead: float, columns: int = 8) -> list[dict[str, dict[int, float]]]:
    """A method that is ahead of FedAKD by about so much in every column, in noise."""
    rng = np.random.default_rng(0)
    return [
        {
            "fedakd": {seed: 0.8 + 0.01 * column for seed in range(3)},
            "fedavg": {seed: 0.8 + 0.01 * column + lead + 0.001 * rng.standard_normal() for seed in range(3)},
        }
        for column in range(columns)
    ]


def test_over_all_columns_methods_are_compared_with_fedakd():
    line = against_line(ahead(0.02), "average")
    assert line is not None
    assert line.startswith(
        "Difference to FedAKD, mean over 8 columns with its 95 % interval before correction: "
        "FedAvg +2.0! (+1.9 to +2.0). Those marked ! are significant"
    )
    assert "!" not in against_line(ahead(0.0), "average")
    assert "None of them is significant" in against_line(ahead(0.0), "average")


def test_a_single_column_is_paired_over_its_seeds():
    assert "mean over 3 seeds" in against_line(ahead(0.02, columns=1), "average")
    assert against_line([{"fedakd": {0: 0.8}, "fedavg": {0: 0.9}}], "average") is None
    assert against_line([{"fedakd": {0: 0.8}}], "average") is None


def test_without_fedakd_the_largest_is_what_others_are_compared_with():
    columns = [{"a": {0: 0.5 + k, 1: 0.6 + k}, "b": {0: 0.4 + k, 1: 0.3 + k}} for k in range(3)]
    named = [{"fedavg": own["a"], "cgsv": own["b"]} for own in columns]
    assert against_line(named, "average").startswith("Difference to FedAvg, mean over 3 columns")


def test_columns_are_paired_over_the_seeds_all_methods_have():
    """The seed that only one of two equal methods has, or in which CF is undefined, must not part them."""
    alike = {0: 0.9, 1: 0.8}
    columns = [
        {"fedakd": {**alike, 2: 0.3}, "fedavg": {**alike, 2: math.nan}, "cgsv": alike} for _ in range(6)
    ]
    line = against_line(columns, "average")
    assert "FedAvg +0.0, CGSV +0.0" in line
    assert against_line([{"fedakd": {0: 0.5}, "fedavg": {1: 0.9}} for _ in range(6)], "average") is None


def test_a_method_without_any_value_takes_no_column_from_the_others():
    rng = np.random.default_rng(0)
    names = ("fedakd", "cgsv", "fedprox")
    columns = [{name: {s: rng.normal() for s in range(3)} for name in names} for _ in range(5)]
    lost = [{**column, "fedavg": dict.fromkeys(range(3), math.nan)} for column in columns]
    assert against_line(lost, "cf") == against_line(columns, "cf")
    assert ranks_line(lost) == ranks_line(columns)
    assert "5 columns" in ranks_line(columns)


def test_where_one_method_competes_nothing_is_compared():
    assert list(notes_of([{"fedavg": {0: 0.5, 1: 0.6}}], "cf")) == [
        "Fewer than two methods compete, so there is nothing to compare."
    ]
