"""`fedakd theory` as a person meets it."""

from __future__ import annotations

import csv
import json

import pytest
from typer.testing import CliRunner

from fedakd.cli import app

pytestmark = pytest.mark.slow  # together they train for more than a few seconds

SMALL = ["--heterogeneity", "1", "--epochs", "1", "--rounds", "12", "--clients", "3", "--rows", "30"]


def told(*words: str) -> str:
    done = CliRunner().invoke(app, ["theory", *words], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_gaussian_names_the_three_deviations():
    text = told("gaussian", "--dims", "3", "--size", "0.1")
    assert "three places" in text
    assert all(f"{place}:" in text for place in ("norm", "cubic", "mean"))
    (row,) = json.loads(told("gaussian", "--dims", "3", "--size", "0.1", "--json"))["rows"]
    assert row["expansion"] == pytest.approx(row["exact"] * (1 + row["expansion_error"]))
    assert abs(row["expansion_error"]) < 0.005 < abs(row["theorem2_error"])


def test_fisher_tells_the_right_factor():
    rows = json.loads(told("fisher", "--size", "0.1", "--json"))["rows"]
    factors = {row["family"]: row["factor"] for row in rows}
    assert factors["normal, covariance"] == pytest.approx(1 / 6)
    assert factors["logistic"] == pytest.approx(1 / 3)
    assert all(abs(row["corrected_error"]) < 0.01 < abs(row["theorem1_error"]) for row in rows)
    assert "1/12" in told("fisher", "--size", "0.1")


def test_sampling_compares_with_simulation():
    (row,) = json.loads(told("sampling", "--dims", "5", "--rows", "500", "--repeats", "200", "--json"))[
        "rows"
    ]
    assert row["leading"] == pytest.approx(0.02)
    assert abs(row["simulated"] - row["exact"]) < 4 * row["standard_error"]
    assert "slip" in told("sampling", "--dims", "5", "--rows", "50", "--repeats", "10")


def test_convergence_prints_r_and_writes_its_figure(tmp_path):
    text = told("convergence", *SMALL, "--out", str(tmp_path), "--method", "fedavg", "--method", "fedakd")
    assert "Why r cannot be positive" in text
    assert "floor" in text
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"observed-gap.{form}" for form in ("svg", "png", "pdf", "csv")}
    with (tmp_path / "observed-gap.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 13
    assert {row["method"] for row in rows} == {"fedavg", "fedakd"}


def test_convergence_as_json_holds_constants_and_gaps(tmp_path):
    methods = ["--method", "fedavg", "--method", "fedakd(alpha=0)", "--method", "fedakd"]
    found = json.loads(told("convergence", *SMALL, "--out", str(tmp_path), *methods, "--json"))
    assert [one["theorem3"] is None for one in found] == [True, True, False]
    assert found[2]["theorem3"]["rate"]["r"] < 0
    assert found[2]["theorem3"]["constants"]["L"] >= found[2]["theorem3"]["constants"]["mu"]
    assert found[0]["gaps"][0] > found[0]["gaps"][-1] > 0


def test_batches_and_seeds_can_be_chosen(tmp_path):
    few = ["convergence", *SMALL, "--out", str(tmp_path), "--method", "fedavg", "--json"]
    full, noisy, other = (
        json.loads(told(*few, *more))[0]["gaps"] for more in ([], ["--batch-size", "5"], ["--seed", "1"])
    )
    assert full != noisy
    assert full[0] != other[0]


@pytest.mark.parametrize("command", ["gaussian", "fisher", "sampling", "convergence"])
def test_help_teaches(command):
    text = told(command, "--help")
    assert "Theorem" in text or "M(M+3)/4A" in text
    assert "default" in text
