"""The published numbers are all there, under the names this package uses."""

from __future__ import annotations

import pytest

from fedakd import partition
from fedakd.data import DATASETS
from fedakd.errors import PlanError
from fedakd.methods import ABLATIONS, METHODS
from fedakd.paper.published import BOLD, TITLES, Published, published

# Of the printed text: how many numbers, and the sums of means and deviations in hundredths. The latter find
# a slip in any of the 524 numbers.
COUNTS = {
    ("table1", "maximum"): (110, 911713, 8617),  # 11 methods, 2 datasets, 5 partitions
    ("table1", "average"): (110, 826750, 7774),
    ("table1", "cf"): (100, 462769, 119371),  # Standalone has none
    ("table2", "maximum"): (11, 82891, 953),
    ("table2", "average"): (11, 76699, 400),
    ("table2", "cf"): (10, 32888, 6400),
    ("table3", "maximum"): (10, 74091, 855),
    ("table3", "average"): (10, 68829, 528),
    ("table3", "cf"): (10, 34756, 5950),
    ("table4", "maximum"): (4, 30628, 435),
    ("table4", "average"): (4, 27708, 417),
    ("table4", "cf"): (4, 28024, 1032),
    ("table5", "maximum"): (70, 472048, 4734),  # 7 methods
    ("table5", "cf"): (60, 496532, 23122),
}
EVERY = [
    (table, measure, *column) for table, measure in COUNTS for column in published(table).columns(measure)
]


def names(table: str, measure: str) -> list[tuple[str, str, str]]:
    own = published(table)
    return [(*column, name) for column in own.columns(measure) for name in own.methods(measure, *column)]


@pytest.mark.parametrize(("table", "measure"), COUNTS)
def test_no_number_is_missing_or_mistyped(table, measure):
    values = [published(table).value(measure, *name) for name in names(table, measure)]
    hundredths = 100 if measure == "cf" else 10000
    means, stds = (sum(round(hundredths * one[part]) for one in values) for part in (0, 1))
    assert (len(values), means, stds) == COUNTS[table, measure]


def test_no_other_measure_is_there():
    assert {(table, measure) for table in TITLES for measure in published(table).measures} == set(COUNTS)


@pytest.mark.parametrize(
    ("table", "measure", "dataset", "part", "method", "mean", "std"),
    [
        ("table1", "maximum", "fashion-mnist", "pow", "standalone", 0.8809, 0.0006),
        ("table1", "maximum", "cifar10", "ics(10)", "fedakd", 0.8130, 0.0143),
        ("table1", "average", "cifar10", "bcs(5)", "cffl", 0.6288, 0.0427),
        ("table1", "average", "fashion-mnist", "ics(5)", "fedas", 0.8784, 0.0027),
        ("table1", "cf", "fashion-mnist", "pow(1)", "feddc", -40.85, 18.38),
        ("table1", "cf", "cifar10", "ics(10)", "feddc", -0.52, 42.33),
        ("table1", "cf", "cifar10", "pow", "fedavg", 3.62, 25.88),
        ("table2", "average", "ehr", "group", "fedsac", 0.6833, 0.0056),
        ("table2", "average", "ehr", "group", "feddc", 0.6961, 0.0029),
        ("table2", "maximum", "ehr", "group", "fedas", 0.7489, 0.0029),
        ("table2", "cf", "ehr", "group", "fedmpr", -5.59, 2.31),
        ("table3", "cf", "ehr", "group", "fedakd", 71.89, 1.82),
        ("table4", "maximum", "ehr", "group", "fedakd-single-dist", 0.7388, 0.0161),
        ("table4", "cf", "ehr", "group", "fedakd-correct-agg", 77.31, 1.98),
        ("table5", "maximum", "cifar10", "dir(3)", "fedave", 0.4214, 0.0033),
        ("table5", "cf", "fashion-mnist", "cla", "fedavg", 83.23, 6.53),
    ],
)
def test_numbers_are_those_of_the_paper(table, measure, dataset, part, method, mean, std):
    assert published(table).value(measure, dataset, part, method) == (mean, std, 3)


def test_table_3_has_rounds():
    rounds = {
        name: published("table3").rounds("ehr", "group", name) for name in ("fedavg", "fedave", "fedakd")
    }
    assert rounds == {"fedavg": 80, "fedave": 39, "fedakd": 40}
    assert published("table2").rounds("ehr", "group", "fedavg") is None


@pytest.mark.parametrize("table", TITLES)
def test_names_are_those_of_this_package(table):
    for measure in published(table).measures:
        for dataset, part, method in names(table, measure):
            assert method in METHODS
            assert dataset in {*DATASETS, "ehr"}
            assert part == partition.text(partition.parse(part))


def test_the_ablations_are_all_there():
    assert set(published("table4").methods("cf", "ehr", "group")) == {BOLD, *ABLATIONS}


@pytest.mark.parametrize(("table", "measure"), COUNTS)
def test_numbers_are_in_the_units_of_this_package(table, measure):
    values = [published(table).value(measure, *name) for name in names(table, measure)]
    low = -100 if measure == "cf" else 0
    high = 100 if measure == "cf" else 1
    assert all(one is not None and low < one.mean < high and one.std > 0 for one in values)
    assert measure != "cf" or max(one.mean for one in values if one) > 1  # not a fraction


@pytest.mark.parametrize("table", ["table1", "table2", "table3", "table4"])
def test_no_average_is_above_its_maximum(table):
    own = published(table)
    for name in names(table, "average"):
        most, mean = own.value("maximum", *name), own.value("average", *name)
        assert mean.mean < most.mean, name


@pytest.mark.parametrize(("table", "measure", "dataset", "part"), EVERY)
def test_the_method_in_bold_has_the_largest_number_but_once(table, measure, dataset, part):
    own = published(table)
    column = {name: own.value(measure, dataset, part, name) for name in own.methods(measure, dataset, part)}
    largest = max(column, key=lambda name: column[name].mean)
    exception = (table, measure, dataset, part) == ("table5", "maximum", "cifar10", "cla")
    assert largest == ("fedavg" if exception else BOLD)


def test_a_column_whose_bold_number_is_not_the_largest_is_told():
    assert [published(table).overtaken() for table in ("table1", "table2", "table3", "table4")] == [[]] * 4
    (one,) = published("table5").overtaken()
    assert (one.measure, one.dataset, one.partition, one.method) == ("maximum", "cifar10", "cla", "fedavg")
    assert (one.bold.mean, one.largest.mean) == (0.5062, 0.5084)


def test_a_draw_does_not_overtake():
    same = {BOLD: [50.0, 1.0], "fedavg": [50.0, 2.0]}
    assert not Published("one", {"cf": {"digits": {"cla": same}}}).overtaken()


def test_what_the_paper_does_not_have_is_none():
    own = published("table1")
    assert own.value("cf", "digits", "pow", "fedavg") is None
    assert own.value("cf", "cifar10", "cla", "fedavg") is None
    assert own.value("cf", "cifar10", "pow", "standalone") is None
    assert own.value("minimum", "cifar10", "pow", "fedavg") is None
    assert own.value("cf", "cifar10", "ics(5, mode=density)", "fedavg") is None
    assert own.value("cf", "cifar10", "pow", "fedakd(alpha=0.5)") is None


def test_a_preset_does_not_make_another_method():
    own = published("table1")
    column = ("cf", "cifar10", "ics(5)")
    assert own.value(*column, "cffl(preset=paper)") == own.value(*column, "cffl") is not None


def test_an_unknown_table_is_refused():
    with pytest.raises(PlanError, match=r"unknown table 'table7'.*Known: table1"):
        published("table7")
