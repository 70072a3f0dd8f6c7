"""The commands about shift, as a user calls them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedakd.cli import app
from fedakd.data import source
from fedakd.errors import DataError, FedakdError, PartitionError, PlanError

RUNNER = CliRunner()


def called(*words: str) -> str:
    done = RUNNER.invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def told(*words: str) -> dict:
    done = RUNNER.invoke(app, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def files(stem: Path) -> set[str]:
    return {path.suffix for path in stem.parent.glob(f"{stem.name}.*")}


EVERY = {".svg", ".png", ".pdf", ".csv"}


def test_what_was_asked_what_came_and_a_sentence_for_each_client(tmp_path):
    said = called("shift", "--partition", "ics(2)", "--clients", "4", "--out", str(tmp_path / "new"))
    assert "what was asked of ics(2), and what came" in said
    assert "4 of 4 sites have inputs shifted" in said
    assert said.count("its inputs are shifted") == 4
    assert files(tmp_path / "new/kl-size") == files(tmp_path / "new/generator") == EVERY
    asked = table(tmp_path / "new/generator.csv")
    assert [float(row["requested"]) for row in asked] == [2.0] * 4
    assert [float(row["realised"]) for row in asked] == pytest.approx([2.0] * 4, rel=0.02)
    assert len(table(tmp_path / "new/kl-size.csv")) == 4


def test_json_holds_the_same(tmp_path):
    found = told("shift", "--partition", "pow", "--clients", "3", "--out", str(tmp_path))
    assert (found["kind"], found["dims"], found["dataset"]) == ("pca", 10, "digits")
    assert found["generator"] is None
    assert len(found["sites"]) == 3
    assert len(found["verdicts"]) == 4
    assert sum(site["kl"] > site["chance"]["high"] for site in found["sites"]) <= 1  # nothing was shifted


def sites(folder: Path, shift: float) -> Path:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for name, n, away in (("north", 400, 0.0), ("south", 300, 0.0), ("west", 200, shift)):
        rows = rng.normal(size=(n, 3)) + away
        lines = [f"{a:.6f},{b:.6f},{c:.6f},{int(a + rng.normal() > away)}" for a, b, c in rows]
        (folder / f"{name}.csv").write_text("\n".join(["age,bmi,pressure,label", *lines]))
    return folder


def test_a_folder_of_sites(tmp_path):
    words = ["shift", "--sites", str(sites(tmp_path / "sites", 1.5)), "--features", "raw"]
    found = told(*words, "--out", str(tmp_path / "out"))
    assert [site["name"] for site in found["sites"]] == ["north", "south", "west"]
    assert [site["rows"] for site in found["sites"]] == [400, 300, 200]
    west = found["sites"][2]
    assert west["kl"] > 1
    assert west["kl"] > west["chance"]["high"]
    assert found["verdicts"][2].startswith("west: its inputs are shifted")
    assert files(tmp_path / "out/kl-size") == EVERY


def test_sites_of_which_nothing_can_be_said_are_in_the_table(tmp_path):
    (tmp_path / "sites").mkdir()
    for name in ("a", "b"):
        (tmp_path / "sites" / f"{name}.csv").write_text("age,bmi\n1,2\n3,5\n")
    found = told(
        "shift", "--sites", str(tmp_path / "sites"), "--features", "raw", "--out", str(tmp_path / "out")
    )
    assert all("too few rows (2)" in line for line in found["verdicts"][:2])
    assert [row["judged_by"] for row in table(tmp_path / "out/kl-size.csv")] == ["nothing", "nothing"]


def test_the_same_seed_says_the_same_and_another_does_not(tmp_path):
    folder = sites(tmp_path / "sites", 0.5)
    words = ["shift", "--sites", str(folder), "--out", str(tmp_path / "out"), "--seed"]
    first, again, other = (told(*words, seed) for seed in ("3", "3", "4"))
    assert first == again != other


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["--sites", "nowhere"], DataError, "expected a folder with one file a site, got nowhere"),
        (["--features", "pac"], FedakdError, "pac.*pca"),
        (["--partition", "pow", "--force"], PlanError, "--force is about covariate shift"),
        (["--label", "outcome"], PlanError, "--label is about the files of --sites"),
        (
            ["--sites", "nowhere", "--dataset", "digits"],
            PlanError,
            "leave out --dataset, --partition",
        ),
        (["--partition", "ics(5000)"], PartitionError, "cannot be shifted by c=5000"),
    ],
)
def test_bad_requests_are_explained(words, error, said, tmp_path):
    done = RUNNER.invoke(app, ["shift", *words, "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, error)
    with pytest.raises(error, match=said):
        raise done.exception
    assert not (tmp_path / "out").exists()


needs_images = pytest.mark.skipif(
    source("fashion-mnist").where() is None, reason="FashionMNIST is not on this machine"
)


@pytest.mark.slow
@needs_images
def test_the_printed_density_is_refused_in_many_dimensions_and_can_be_forced(tmp_path):
    asked = ["--dataset", "fashion-mnist", "--partition", "ics(5, mode=density, dims=100)"]
    words = ["shift", *asked, "--out", str(tmp_path)]
    done = RUNNER.invoke(app, words)
    assert isinstance(done.exception, PartitionError)
    assert "effective size" in str(done.exception)
    assert not list(tmp_path.iterdir())
    found = told(*words, "--force")
    assert min(shift["effective_share"] for shift in found["generator"]) < 0.01


@pytest.mark.slow
@needs_images
def test_what_is_asked_on_real_images_is_what_comes(tmp_path):
    words = ["shift", "--dataset", "fashion-mnist", "--out", str(tmp_path), "--partition"]
    for shift in told(*words, "ics(5)")["generator"]:
        assert shift["requested"] == 5.0
        assert shift["realised"] == pytest.approx(5.0, rel=0.02)
        assert abs(shift["test_realised"] - shift["realised"]) < 4 * shift["test_error"]
    for shift in told(*words, "ics(kl=1.5)")["generator"]:
        assert shift["kl_realised"] == pytest.approx(1.5, rel=0.02)


def test_figure_1a(tmp_path):
    said = called(
        "paper",
        "figure1a",
        "--dataset",
        "digits",
        "--clients",
        "3",
        "--partition",
        "ics(2)",
        "--out",
        str(tmp_path),
    )
    assert files(tmp_path / "figure1a") == EVERY
    assert "3 of 3 sites have inputs shifted" in said


def test_figure_2_needs_two_clients():
    with pytest.raises(PlanError, match="at least 2; got 1"):
        raise RUNNER.invoke(app, ["paper", "figure2", "--dataset", "digits", "--clients", "1"]).exception


def test_figure_4_needs_more_rows_than_dimensions(tmp_path):
    words = [
        "paper",
        "figure4",
        "--dataset",
        "digits",
        "--features",
        "pca",
        "--dims",
        "50",
        "--clients",
        "10",
    ]
    done = RUNNER.invoke(app, [*words, "--fraction", "0.1", "--partition", "pow", "--out", str(tmp_path)])
    assert isinstance(done.exception, DataError)
    assert "choose fewer --dims" in str(done.exception)
    assert not list(tmp_path.glob("figure4*"))


@pytest.mark.slow
def test_figure_2_says_whether_the_claim_survives(tmp_path):
    words = ["paper", "figure2", "--dataset", "digits", "--partition", "ics(1)", "--clients", "3"]
    said = called(
        *words, "--rounds", "1", "--repeats", "20", "--model", "mlp", "--workers", "0", "--out", str(tmp_path)
    )
    assert files(tmp_path / "figure2") == EVERY
    rows = table(tmp_path / "figure2.csv")
    farther = sum(float(row["kl_wrong"]) > float(row["chance_wrong_high"]) for row in rows)
    assert f"farther than random parts of their size for {farther} of {len(rows)} clients" in said
    mean = np.mean([float(row["kl_wrong"]) - float(row["kl_right"]) for row in rows])
    assert f"KL(wrong) - KL(right) is {mean:.2f} on average" in said
    for row in rows:
        assert float(row["kl_right"]) > 0
        assert (
            float(row["chance_wrong_low"])
            <= float(row["chance_wrong_mean"])
            <= float(row["chance_wrong_high"])
        )


@pytest.mark.slow
def test_figure_4_compares_the_theorems(tmp_path):
    words = ["paper", "figure4", "--dataset", "digits", "--partition", "ics(1)", "--clients", "3"]
    said = called(*words, "--features", "pca", "--dims", "5", "--out", str(tmp_path))
    assert files(tmp_path / "figure4") == EVERY
    assert "median error of Theorem 2 as printed" in said
    rows = table(tmp_path / "figure4.csv")
    assert [int(row["rows"]) for row in rows] == sorted((int(row["rows"]) for row in rows), reverse=True)
    assert all(float(row["random_mean"]) < float(row["exact"]) for row in rows)
