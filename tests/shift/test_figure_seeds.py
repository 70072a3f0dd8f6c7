"""The paper's figures about shift over seeds and presets: what is repeated, told beforehand, and kept."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedakd.shift
from fedakd.cli import app, seconds
from fedakd.cli.seeds import Ground
from fedakd.compare import estimate
from fedakd.data import load
from fedakd.drawn import federation_of
from fedakd.errors import DataError, PlanError
from fedakd.gaussians import moments
from fedakd.plan import resolve
from fedakd.shift import halves, of_federation
from fedakd.shift.measure import Chance
from fedakd.shift.wrong import Halves, RightWrong, over_seeds

RUNNER = CliRunner()
COMMON = ["--dataset", "digits", "--partition", "ics(1)", "--clients", "3"]
FIGURES = {
    "figure1a": [],
    "figure4": ["--features", "pca", "--dims", "5"],
    "figure2": ["--rounds", "1", "--repeats", "20", "--model", "mlp", "--workers", "0"],
}


def called(figure: str, out: Path, *words: str):
    done = RUNNER.invoke(app, ["paper", figure, *COMMON, *FIGURES[figure], "--out", str(out), *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("figure", ["figure1a", "figure4", pytest.param("figure2", marks=pytest.mark.slow)])
def test_seeds_are_what_each_seed_gives_alone(figure, tmp_path):
    said = called(figure, tmp_path / "both", "--seed", "3", "--seeds", "2").stdout
    both = table(tmp_path / f"both/{figure}.csv")
    for seed in ("3", "4"):
        alone = called(figure, tmp_path / seed, "--seed", seed).stdout.splitlines()[0]
        assert [row for row in both if row["seed"] == seed] == table(tmp_path / f"{seed}/{figure}.csv")
        assert f"seed {seed}: {alone}" in said
    assert {row["seed"] for row in both} == {"3", "4"}
    assert "\nOver 2 seeds" in said
    if figure != "figure2":  # which has a panel more
        first = (tmp_path / f"3/{figure}.svg").read_bytes()
        assert (tmp_path / f"both/{figure}.svg").read_bytes() == first


def found(difference: float, p: float, left: float) -> RightWrong:
    chance = Chance(1.0, 0.5, 1.5)
    client = Halves("0", 9, 9, left, left + difference, 1.0, chance, chance)
    return RightWrong((client, client), difference, Chance(0.2, -0.1, 0.4), p)


def test_the_verdict_over_seeds_counts_and_shows_each():
    seeds = {0: found(0.9, 0.01, 0.2), 1: found(0.9, 0.01, 0.8), 2: found(-0.3, 0.6, 0.2)}
    said = over_seeds({**seeds, 5: found(-0.3, 0.03, 0.2)})
    assert (
        "Over 4 seeds the claim that the shift sits in the wrong rows survives for 1, in part for 2;" in said
    )
    assert "0.90 (seed 0; random -0.10 to 0.40)" in said
    assert "-0.30 (seed 5; random -0.10 to 0.40)." in said


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--preset", "papper"], "papper.*paper"),
        (["--preset", "released", "--partition", "dir(1)"], "released has only pow, bcs, ics"),
        (
            ["--preset", "released", "--partition", "ics(kl=1.5)"],
            r"no settings of its generator.*ask for ics",
        ),
        (["--seed", "-1"], "seeds of 0 or above"),
        (["--fraction", "1.5"], "fraction: .*less than or equal to 1"),
    ],
)
def test_what_does_not_go_together_is_refused(figure, words, said, tmp_path):
    with pytest.raises(PlanError, match=said):
        called(figure, tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


def test_the_preset_chooses_recipe_and_rows_of_figure_2(tmp_path, monkeypatch):
    seen = []

    def stop(federation, task, recipe, **_):
        seen.append((recipe.optimizer, recipe.lr, sum(map(len, federation.train)), federation.leaky))
        raise DataError("seen enough")

    monkeypatch.setattr(halves, "parted", stop)
    for preset in ("tuned", "paper", "released"):
        with pytest.raises(DataError, match="seen enough"):
            called("figure2", tmp_path, "--preset", preset)
    rows = len(load("digits").y)
    assert [one[:2] for one in seen] == [("adam", 0.001), ("sgd", 0.01), ("adam", 0.001)]
    assert [one[2] for one in seen] == pytest.approx([0.7 * rows, 0.35 * rows, 0.4 * rows], rel=0.01)
    assert [one[3] for one in seen] == [False, False, True]


def plan(preset: str = "tuned", **choices):
    return resolve(preset, dataset="digits", partition="ics(1)", clients=3, **choices)


@pytest.mark.parametrize("preset", ["tuned", "released"])
def test_sites_lie_in_their_pool_and_no_test_row_is_looked_at(preset):
    federation = federation_of(plan(preset), load("digits"), 0, leak=False)
    sites = of_federation(federation)
    assert all(np.isin(part, sites.pool).all() for part in sites.parts)
    assert len(sites.validation)
    for rows in (sites.pool, sites.fitting, sites.validation):
        assert not np.isin(rows, federation.global_test).any()
    assert not np.isin(sites.fitting, sites.validation).any()
    assert np.isin(sites.fitting, sites.pool).all()


def test_of_the_released_generator_the_very_rows_are_compared(tmp_path):
    done = called("figure1a", tmp_path, "--preset", "released", "--features", "raw", "--partition", "pow")
    assert "LEAKY BY DESIGN" in done.stderr
    asked = plan("released").model_copy(update={"partition": "pow"})
    sites = of_federation(federation_of(asked, load("digits"), 0, leak=False))
    x = sites.dataset.x.reshape(len(sites.dataset.y), -1).astype(float)
    for part, row in zip(sites.parts, table(tmp_path / "figure1a.csv"), strict=True):
        assert int(row["rows"]) == len(part)
        gap = x[part].mean(0) - x[sites.pool].mean(0)
        across = np.linalg.pinv(moments(x[sites.pool]).covariance, hermitian=True)
        assert float(row["of_mean"]) == pytest.approx(gap @ across @ gap / 2, rel=1e-4)


def test_a_strength_the_released_generator_does_not_know_is_told(tmp_path):
    done = called("figure1a", tmp_path, "--preset", "released")
    assert "preset released: of ics(1) only ics counts" in done.stderr


def test_time_is_told_before_anything_is_trained(tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(halves, "parted", stop)
    done = called("figure2", tmp_path, "--seeds", "2")
    assert done.stderr.startswith("about ")
    assert "for 2 seeds, by one short cell" in done.stderr.splitlines()[0]


def test_time_is_told_of_features_that_are_trained_and_of_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(seconds, "of_fitting", lambda sites, kind, dims: 100.0)
    monkeypatch.setattr(
        fedakd.shift, "feature_map", lambda *_: lambda rows: load("digits").x[rows, 0, 2:5, 3]
    )
    told = called("figure4", tmp_path, "--features", "vae", "--seeds", "3").stderr
    assert told.startswith("at most about 5 min of training for 3 seeds, by one short epoch")
    assert "about" not in called("figure4", tmp_path).stderr


@pytest.mark.parametrize(("workers", "busiest"), [(0, "sum"), (1, "sum"), (2, "half"), (8, "largest")])
def test_a_round_lasts_as_long_as_its_busiest_process(workers, busiest, monkeypatch):
    pace = estimate.Pace(0, trained=0.5, judged=0.25)
    monkeypatch.setattr(estimate, "measured", lambda job, dataset: pace)
    asked = Ground(plan(rounds=7), load("digits"))
    first = asked.first
    work = [0.5 * len(a) + 0.25 * 2 * len(b) for a, b in zip(first.train, first.test, strict=True)]
    expected = {"sum": sum(work), "half": max(max(work), sum(work) / 2), "largest": max(work)}[busiest]
    assert seconds.of_rounds(asked, workers) == pytest.approx(7 * expected)


def test_a_short_epoch_stands_for_all_epochs_of_all_rows(monkeypatch):
    asked = Ground(plan(), load("digits"))
    sites, fitted = of_federation(asked.first), []
    monkeypatch.setattr(seconds, "SHORT", 100)
    monkeypatch.setattr(
        fedakd.shift,
        "feature_map",
        lambda short, *_, epochs, seed: fitted.append((len(short.fitting), epochs)),
    )
    monkeypatch.setattr(estimate, "timed", lambda call: (call(), 2.0)[1])
    assert seconds.of_fitting(sites, "vae", None) == pytest.approx(30 * 2.0 * len(sites.fitting) / 100)
    assert fitted == [(100, 1)]


def test_partings_take_time_by_their_number(monkeypatch):
    asked = Ground(plan(), load("digits"))
    monkeypatch.setattr(estimate, "timed", lambda call: 0.5)
    rows = [len(np.unique(own)) for own in asked.first.train]
    assert seconds.of_partings(asked, 4, 60) == pytest.approx(60 * 0.5 * sum(rows) / max(rows))


@pytest.mark.parametrize(
    ("finished", "said"), [(1, "1 of 3 seeds are finished and written down: 5"), (0, "no")]
)
def test_stopped_by_hand_it_leaves_the_seeds_that_are_finished(finished, said, tmp_path, monkeypatch):
    whole, calls = fedakd.shift.report, []

    def report(*words, **options):
        calls.append(options["seed"])
        if len(calls) > finished:
            raise KeyboardInterrupt
        return whole(*words, **options)

    monkeypatch.setattr(fedakd.shift, "report", report)
    done = called("figure1a", tmp_path, "--seeds", "3", "--seed", "5")
    assert done.exit_code == 130
    assert f"stopped; {said}" in done.stderr
    path = tmp_path / "figure1a.csv"
    assert {row["seed"] for row in table(path)} == {"5"} if finished else not path.exists()
    assert path.with_suffix(".svg").exists() == bool(finished)


def test_a_sentence_over_seeds_says_how_far_sites_are_beyond_chance(tmp_path):
    said = called("figure1a", tmp_path, "--seeds", "2").stdout
    rows = table(tmp_path / "figure1a.csv")
    times = [float(row["kl"]) / float(row["chance_mean"]) for row in rows]
    assert f"KL is {min(times):.1f} to {max(times):.1f} times that of random rows" in said
    assert f"median {np.median(times):.1f}." in said


def test_looking_takes_time_by_rows(monkeypatch):
    asked, seen = Ground(plan(model="mlp"), load("digits")), []
    monkeypatch.setattr(seconds, "LOOKED", 50)
    monkeypatch.setattr(
        halves, "seen_by", lambda model, bench, parts, dims, seed: seen.extend(map(len, parts))
    )
    monkeypatch.setattr(estimate, "timed", lambda call: (call(), 0.5)[1])
    rows = sum(len(np.unique(own)) for own in asked.first.train)
    assert seconds.of_looking(asked, 4) == pytest.approx(0.5 * rows / 50)
    assert seen == [50]
