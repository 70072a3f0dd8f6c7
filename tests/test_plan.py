"""Plans: every choice made, every wrong choice named."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from fedakd.errors import FedakdError, PartitionError, PlanError
from fedakd.methods import METHODS, of_the_paper
from fedakd.methods.fedakd import FedAKD
from fedakd.plan import SETTINGS, fingerprint, resolve
from fedakd.training import Recipe


@pytest.mark.parametrize(
    ("preset", "dataset", "recipe", "fraction"),
    [
        ("tuned", "fashion-mnist", Recipe(1, 32, 0.001, "adam"), 1.0),
        ("paper", "fashion-mnist", Recipe(1, 32, 0.001, "sgd"), 0.5),
        ("paper", "cifar10", Recipe(1, 32, 0.005, "sgd"), 0.5),
        ("released", "cifar10", Recipe(1, 32, 0.005, "adam"), 0.5),
    ],
)
def test_presets(preset, dataset, recipe, fraction):
    plan = resolve(preset, dataset=dataset)
    assert (plan.recipe, plan.fraction, plan.rounds) == (recipe, fraction, 20)


def test_what_the_user_says_goes_before_the_preset():
    plan = resolve("paper", lr=0.3, fraction=0.25, rounds=None)
    assert (plan.lr, plan.fraction, plan.optimizer, plan.rounds) == (0.3, 0.25, "sgd", 20)


def test_standalone_is_always_there_and_first():
    assert resolve(methods=("fedakd", "fedavg", "fedakd")).methods == ("standalone", "fedakd", "fedavg")


def test_one_spelling_for_each_thing():
    plan = resolve(partition="ICS( 5.0 )", methods=("FedAKD(select=all)",))
    assert plan.partition == "ics(5)"
    assert plan.methods == ("standalone", "fedakd-all-data")


def test_released_gives_fedakd_its_order_and_half_as_many_rounds_again():
    plan = resolve("released")
    assert plan.method("fedakd") == FedAKD(order="released")
    assert (plan.rounds_of("fedakd"), plan.rounds_of("fedavg")) == (30, 20)
    assert plan.leaks("fedakd")
    assert not plan.leaks("fedavg")
    assert not resolve("paper").leaks("fedakd")


def test_the_leak_can_be_closed_and_only_those_it_concerns_are_other_cells() -> None:
    plan, closed = (resolve("released", methods=("fedakd", "fedavg"), leak=leak) for leak in (True, False))
    assert not closed.leaks("fedakd")
    assert closed.remarks == ["not the published protocol: without their test rows train fedakd"]
    assert closed.cell("fedakd", 0) != plan.cell("fedakd", 0)
    assert closed.cell("fedakd", 0)["rounds"] == plan.cell("fedakd", 0)["rounds"]
    assert closed.cell("fedavg", 0) == plan.cell("fedavg", 0)


def test_there_is_no_leak_to_close_but_in_released() -> None:
    with pytest.raises(PlanError, match="only preset released trains on test rows"):
        resolve("tuned", leak=False)


def test_all_are_the_methods_of_the_paper_without_the_ablations():
    plan = resolve(methods=("ALL", "fedakd-all-data"))
    assert plan.methods == (*of_the_paper(), "fedakd-all-data")
    assert len(of_the_paper()) == 13


@pytest.mark.parametrize("preset", ["tuned", "paper", "released"])
@pytest.mark.parametrize("name", METHODS)
def test_a_preset_of_the_run_chooses_that_of_each_method_and_what_is_said_goes_before(preset, name):
    known, settings = METHODS[name], SETTINGS[preset]
    plan = resolve(preset, methods=(name, f"{name}(preset=orig)") if fields(known) else (name,))
    expected = replace(known, **known.presets.get(settings, {}))
    assert plan.method(name) == expected
    assert name in plan.methods
    assert plan.method(plan.methods[-1]) == known
    assert resolve(preset, methods=plan.methods).methods == plan.methods


def test_who_has_seen_test_rows_in_the_published_protocol():
    """Its validation rows are test rows too: those who use them have seen these, without a leak as well."""
    every = ("fedavg", "cffl", "cgsv", "fedave", "fedsac", "fedakd")
    assert resolve("released", methods=every).spoiled == ["cffl", "cgsv", "fedave", "fedsac", "fedakd"]
    closed = resolve("released", methods=every, leak=False)
    assert (closed.leaking, closed.spoiled) == ([], ["cffl", "fedave", "fedsac"])
    assert resolve("tuned", methods=every).spoiled == []


def test_methods_that_cannot_use_the_recipe_of_the_run_are_remarked_on():
    remarks = resolve(methods=("scaffold", "feddc", "fedavg")).remarks
    assert [one.split(" trains")[0] for one in remarks] == ["scaffold", "feddc"]
    assert "sgd 0.1, standalone with adam 0.001" in remarks[0]
    assert resolve(methods=("scaffold",), optimizer="sgd", lr=0.05).remarks == []
    leaking = resolve("released", methods=("fedakd", "fedavg", "cgsv")).remarks
    assert leaking == ["LEAKY BY DESIGN: trained on their own test rows: fedakd, cgsv"]


def test_presets_of_methods_name_fields_that_differ():
    for known in METHODS.values():
        assert set(known.presets) <= {"paper", "released"}
        for changes in known.presets.values():
            assert changes
            assert all(getattr(type(known)(), field) != value for field, value in changes.items())


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"methods": ("fedavgg",)}, "unknown method 'fedavgg'; did you mean 'fedavg'"),
        ({"methods": ("all(preset=paper)",)}, "all takes no fields; --preset paper chooses them for all"),
        ({"methods": ("fedakd(alpa=1)",)}, "unknown field of fedakd 'alpa'; did you mean 'alpha'"),
        ({"partition": "isc(5)"}, "unknown partition 'isc'; did you mean 'ics'"),
        ({"rounds": 0}, "rounds: Input should be greater than or equal to 1, got 0"),
        ({"clients": -1}, "clients: .* got -1"),
        ({"fraction": 1.5}, "fraction: .* less than or equal to 1, got 1.5"),
        ({"optimizer": "adamw"}, "optimizer: .*'sgd' or 'adam', got 'adamw'"),
        ({"seeds": (-1,)}, "seeds: expected one or more seeds of 0 or above"),
        ({"lr": float("inf")}, "lr: .* got inf"),
        ({"model": "cnn9"}, "unknown model 'cnn9'"),
        ({"methods": ("fedakd(temperature=0)",)}, "temperature must be above 0, got 0"),
        ({"methods": ("fedakd(alpha=-1)",)}, "alpha and beta must be 0 or above, got -1"),
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
    ],
)
def test_wrong_choices_are_named(choices, message):
    with pytest.raises((PlanError, PartitionError), match=message):
        resolve(**choices)


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(FedakdError, match="unknown preset 'papper'; did you mean 'paper'"):
        resolve("papper")


def test_a_plan_can_be_stored_and_read():
    plan = resolve("paper", methods=("fedakd(alpha=0.5)",), seeds=(3, 1), max_seconds=9.5)
    assert resolve(**plan.model_dump(mode="json")) == plan


def test_a_fedsac_that_never_takes_a_unit_away_is_told():
    told = [resolve("paper", methods=("fedsac",), rounds=rounds).remarks for rounds in (15, 16)]
    assert any("fedsac measures units after round 15" in remark for remark in told[0])
    assert not any("measures units" in remark for remark in told[1])


def test_cells_differ_where_numbers_could():
    plan = resolve()
    cells = {fingerprint(plan.cell(m, s)) for m in ("fedakd", "fedavg") for s in (0, 1)}
    assert len(cells) == 4
    assert fingerprint(resolve(lr=0.1).cell("fedavg", 0)) not in cells
    assert fingerprint(resolve(methods=("fedavg",), seeds=(0, 9)).cell("fedavg", 0)) in cells
