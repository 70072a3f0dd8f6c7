"""A comparison's file says what is to be done, and a wrong one is told what is wrong with it."""

from __future__ import annotations

import re

import pytest
from small_plans import SAID, small

from fedakd.compare import read_comparison
from fedakd.errors import PlanError

PLAN = """
title = "mine"
datasets = ["digits"]
partitions = ["POW", "ics(2.0)"]
methods = ["fedavg"]
seeds = 2
lr = 0.01

[[override]]
partition = "ics(2)"
set = { lr = 0.5 }

[[override]]
dataset = "digits"
partition = "ics( 2 )"
set = { rounds = 7 }
"""


def test_a_file_becomes_a_plan_for_each_dataset_and_partition(tmp_path):
    (tmp_path / "mine.toml").write_text(PLAN)
    asked = read_comparison(tmp_path / "mine.toml")
    plain, shifted = asked.settings
    assert (plain.partition, plain.lr, plain.rounds) == ("pow(1)", 0.01, 20)
    assert (shifted.partition, shifted.lr, shifted.rounds) == ("ics(2)", 0.5, 7)
    assert plain.seeds == (0, 1)
    assert plain.methods == ("standalone", "fedavg")


def test_what_is_said_beside_the_file_wins_over_it(tmp_path):
    (tmp_path / "mine.toml").write_text(PLAN)
    asked = read_comparison(tmp_path / "mine.toml", seeds=3, preset="paper", rounds=None)
    assert asked.seeds == (0, 1, 2)
    assert {plan.preset for plan in asked.settings} == {"paper"}
    assert asked.settings[0].fraction == 0.5, "the preset's own defaults hold"
    assert asked.settings[0].rounds == 20


def test_an_override_can_be_for_one_preset():
    own = [{"preset": "paper", "set": {"lr": 0.3}}, {"preset": "tuned", "set": {"lr": 0.4}}]
    assert {plan.lr for plan in small(override=own).settings} == {0.4}
    assert {plan.lr for plan in small(override=own, preset="paper").settings} == {0.3}
    assert {plan.lr for plan in small(override=own, preset="released").settings} == {0.001}


def test_an_override_for_a_preset_is_for_settings_that_have_it_by_another():
    own = [{"partition": "pow", "set": {"preset": "paper"}}, {"preset": "paper", "set": {"lr": 0.3}}]
    assert [plan.lr for plan in small(override=own).settings] == [0.3, 0.001]


def test_equal_texts_of_a_partition_are_one_setting():
    assert len(small(partitions=["ics(2)", "ICS(2.0)", "ics( 2 )"]).settings) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"datasets": ["digitz"]}, r"datasets: unknown dataset 'digitz'; did you mean 'digits'"),
        ({"datasets": "digits"}, r"datasets: Input should be a list, got 'digits'"),
        ({"datasets": []}, r"datasets: .*at least 1"),
        ({"partitions": ["icy(2)"]}, r"partitions: unknown partition 'icy'"),
        ({"methods": ["fedavg", "fedacd"]}, r"methods: unknown method 'fedacd'; did you mean .*'fedakd'"),
        ({"seeds": -1}, r"seeds: expected one or more seeds of 0 or above, got \(\)"),
        ({"seeds": [0, -3]}, r"seeds: expected one or more seeds of 0 or above, got"),
        ({"preset": "tunedd"}, r"preset: Input should be 'tuned', 'paper' or 'released', got 'tunedd'"),
        ({"lr": -0.1}, r"lr: Input should be greater than 0, got -0.1"),
        (
            {"learning_rate": 0.1},
            r"learning_rate is no key that can be set here, got 0.1; allowed .*\blr\b",
        ),
        (
            {"override": [{"set": {"lrr": 1}}]},
            r"lrr is no key that can be set here, got 1; allowed .*\blr\b",
        ),
        ({"override": [{"dataset": "cifar10", "set": {"lr": 1}}]}, r"there is no setting 'cifar10'"),
        ({"override": [{"partition": "pow", "where": 1, "set": {}}]}, r"override.0.where: Extra inputs"),
        ({"preset": "released", "partitions": ["cla"]}, r"preset released has only pow, bcs, ics"),
        ({"preset": "released", "evaluation": "global"}, r"got evaluation global"),
        ({"override": [{"set": {"preset": 3}}]}, r"unknown preset 3"),
        ({"methods": [3]}, r"small.toml: methods.0: Input should be a valid string, got 3$"),
        ({"lr": True}, r"lr is neither true nor false, got true"),
        ({"seeds": "3"}, r"seeds: expected how many, as 3, or a list of them, as \[0, 1, 2\], got '3'"),
        ({"equal_time": "fedakt"}, r"unknown method 'fedakt'; did you mean"),
    ],
)
def test_a_wrong_value_is_named_with_its_key_and_what_is_allowed(change, told):
    with pytest.raises(PlanError, match=told) as error:
        small(**change)
    assert str(error.value).startswith("small.toml: ")


@pytest.mark.parametrize("key", ["title", "datasets", "partitions", "methods"])
def test_what_is_missing_is_named(key, tmp_path):
    from fedakd.compare import comparison

    with pytest.raises(PlanError, match=rf"mine: {key}: Field required"):
        comparison({name: value for name, value in SAID.items() if name != key}, "mine")


@pytest.mark.parametrize("text", ["datasets = [", "\xff"])
def test_what_is_not_toml_is_told_with_its_file(tmp_path, text):
    path = tmp_path / "broken.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(PlanError, match=rf"{re.escape(str(path))}: this is not TOML"):
        read_comparison(path)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(
        PlanError, match=r"nowhere.toml: expected a TOML file with a comparison; No such file"
    ):
        read_comparison(tmp_path / "nowhere.toml")
