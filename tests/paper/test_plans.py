"""The plans that come with the package are the paper's, and their commands say what is wrong."""

from __future__ import annotations

import json
import math

import pytest
import typer
from typer.testing import CliRunner

from fedakd.cli import app
from fedakd.cli.artefacts import COMMANDS, STANDING, plan_of
from fedakd.compare import jobs_of
from fedakd.compare.pace import at_equal_time
from fedakd.errors import PlanError
from fedakd.methods import METHODS
from fedakd.paper.published import published


@pytest.mark.parametrize("name", COMMANDS)
def test_every_plan_resolves_and_is_listed(name):
    asked = plan_of(name)
    assert asked.settings
    assert all(method.split("(")[0] in METHODS for plan in asked.settings for method in plan.methods)
    assert name in CliRunner().invoke(app, ["paper", "list"]).stdout


def test_the_list_has_every_command_and_no_other():
    known = {command.name for command in typer.main.get_command(app).commands["paper"].commands.values()}  # type: ignore[attr-defined]
    assert known == {*COMMANDS, *STANDING, "list"}


@pytest.mark.parametrize(
    ("table", "measure"), [("table1", "maximum"), ("table1", "cf"), ("table5", "maximum")]
)
def test_what_was_published_is_what_is_compared(table, measure):
    known, asked = published(table), plan_of(table)
    columns = {(plan.dataset, plan.partition) for plan in asked.settings}
    assert columns == set(known.columns(measure))
    for dataset, partition in columns:
        further = {"converged", "standalone(sgd=true)"}  # references that the paper does not have
        own = set(asked.settings[0].methods) - further - ({"standalone"} if measure == "cf" else set())
        assert set(known.methods(measure, dataset, partition)) == own


def test_table5_has_the_nets_and_rates_of_the_appendix():
    by_dataset = {plan.dataset: plan for plan in plan_of("table5").settings}
    fashion, cifar = by_dataset["fashion-mnist"], by_dataset["cifar10"]
    assert (fashion.model, fashion.batch_size, fashion.lr) == ("cnn2", 32, 0.15)
    assert (cifar.model, cifar.batch_size, cifar.lr) == ("cnn3", 128, 0.015)
    assert {plan.evaluation for plan in plan_of("table5").settings} == {"global"}
    only = plan_of("table5", datasets=["cifar10"])
    assert [plan.lr for plan in only.settings] == [0.015] * 5
    assert plan_of("table5", datasets=["digits"]).settings
    tuned = {plan.dataset: plan for plan in plan_of("table5", preset="tuned").settings}
    assert {(plan.optimizer, plan.lr) for plan in tuned.values()} == {("adam", 0.001)}
    assert (tuned["cifar10"].model, tuned["cifar10"].batch_size) == ("cnn3", 128)
    with pytest.raises(PlanError, match="preset released judges every client on its own test rows"):
        plan_of("table5", preset="released", partitions=["pow"])


def test_table3_gives_everybody_the_time_of_fedakd(tmp_path):
    """Measured once, with the methods taking turns, and then kept, so that the cells repeat."""
    choices = {"datasets": ["digits"], "partitions": ["pow"], "methods": ["fedavg", "fedas", "fedakd"]}
    asked = plan_of("table3", **choices, clients=3, scale=0.3, seeds=1, preset="tuned")
    texts: list[str] = []
    paced = at_equal_time(asked, "fedakd", tmp_path, texts.append)
    seconds = next(iter(json.loads((tmp_path / "seconds.json").read_text()).values()))
    (plan,) = paced.settings
    assert plan.rounds_of("fedakd") == plan.rounds_of("standalone") == 40
    assert plan.rounds_of("fedavg") == math.floor(40 * seconds["fedakd"] / seconds["fedavg"]) > 40
    assert plan.rounds_of("fedas") == math.floor(40 * seconds["fedakd"] / seconds["fedas"])
    assert len(texts) == 1
    assert at_equal_time(asked, "fedakd", tmp_path, texts.append) == paced
    assert len(texts) == 1, "measured once"
    longer = plan_of("table3", **choices, clients=3, scale=0.3, seeds=1, preset="tuned")
    names = {job.method: job.name for job in jobs_of(longer) if job.method == "fedakd"}
    assert {job.method: job.name for job in jobs_of(paced) if job.method == "fedakd"} == names


def test_what_the_user_says_wins():
    asked = plan_of("table1", seeds=5, scale=0.1, preset="tuned", rounds=None)
    assert len(asked.seeds) == 5
    assert {(plan.scale, plan.preset, plan.optimizer, plan.rounds) for plan in asked.settings} == {
        (0.1, "tuned", "adam", 20)
    }


def test_a_wrong_option_names_the_command_and_the_key():
    with pytest.raises(PlanError, match=r"fedakd paper table1: scale: Input should be .*, got 2.0"):
        plan_of("table1", scale=2.0)
    with pytest.raises(PlanError, match=r"fedakd paper table1: datasets: unknown dataset 'minst'"):
        plan_of("table1", datasets=["minst"])
